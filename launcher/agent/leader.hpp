#pragma once
// The leader's hands: it calls every agent, carries their words to the supervisor (which decides), and does
// what the supervisor says in the order it says it: first on record, then acted upon.
#include <functional>
#include <memory>

#include "launcher/agent/commit_desk.hpp"
#include "launcher/agent/script_stand_in.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/config/run_config.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

class Leader {
 public:
  /// Holds epoch `epoch`. `resigned` is called once, and then this object must be destroyed.
  Leader(control::Loop& loop, RunDir run, Roster roster, const config::RunConfig& config,
         const control::Key& secret, std::shared_ptr<slurm::Cluster> cluster, int epoch, int self,
         std::function<void(const std::string& why)> resigned);
  ~Leader();
  int epoch() const { return epoch_; }

 private:
  struct Line {
    control::ChannelPtr channel;
    bool greeted = false;  ///< the agent has answered our hello
    Clock::time_point next_dial;
  };

  void call(int node);
  void take(int node, const control::Message& message);
  void lost_line(int node);
  void tick();
  void act();
  void send(int node, const control::Message& message);
  void send_all(const control::Message& message);
  void launch(const Launch& what);
  bool script_is_lost() const;
  bool still_leading() const;
  void resign(const std::string& why);

  control::Loop& loop_;
  RunDir run_;
  Roster roster_;
  config::RunConfig config_;
  control::Key secret_;
  int epoch_, self_;
  std::function<void(const std::string&)> resigned_;
  bool over_ = false;
  Journal journal_;
  Supervisor supervisor_;
  std::unique_ptr<CommitDesk> desk_;
  ScriptStandIn script_;
  std::vector<Line> lines_;
  control::Loop::Handle tick_timer_, beat_timer_;
};

}  // namespace holdfast::launcher
