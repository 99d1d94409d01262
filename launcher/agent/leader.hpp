#pragma once
// The leader's hands: it calls every agent, carries their words to the supervisor (which decides), and does
// what the supervisor says in the order it says it: first on record, then acted upon.
#include <deque>
#include <functional>
#include <memory>
#include <variant>

#include "launcher/agent/commit_desk.hpp"
#include "launcher/agent/scribe.hpp"
#include "launcher/agent/script_stand_in.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/config/run_config.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

/// What a leader begins with.
struct Inheritance {
  std::shared_ptr<Journal> journal;  ///< of its term
  RunState state;                    ///< by the event log, its own election being the last event
};
/// Puts on record that node `self` leads by `term`, which it has taken. Waits for the run directory as long
/// as that takes, so never in a loop's thread. Throws Error.
Inheritance inherit(const RunDir& run, const Roster& roster, int term, int self);

class Leader {
 public:
  /// Holds term `term`, with what it has inherited. `resigned` is called once, and then this object must be
  /// destroyed. While the run directory does not answer, for two minutes at most, decisions wait and
  /// everything else goes on.
  Leader(control::Loop& loop, RunDir run, Roster roster, const config::RunConfig& config,
         const control::Key& secret, std::shared_ptr<slurm::Cluster> cluster, int term, int self,
         Inheritance inherited, std::function<void(const std::string& why)> resigned);
  ~Leader();
  int term() const { return term_; }

 private:
  struct Line {
    control::ChannelPtr channel;
    bool greeted = false;  ///< the agent has answered our hello
    Clock::time_point next_dial;
  };
  /// What has been ordered so far. The supervisor may be ahead of it: what it decides is on its way to the
  /// disk.
  struct Ordered {
    int attempt = 0;
    std::optional<control::Drain> drain;
    bool paused = false;
    std::optional<int> finish;
  };
  using Step = std::variant<Action, std::function<void()>>;

  // leader.cpp
  void call(int node);
  void greet(int node);
  void take(int node, const control::Message& message);
  void lost_line(int node);
  void tick();
  void send(int node, const control::Message& message);
  void send_all(const control::Message& message);
  bool script_is_lost() const;
  void resign(const std::string& why);
  const Roster::Node& node(int n) const { return roster_.nodes[static_cast<std::size_t>(n)]; }

  // leader_acts.cpp
  void act(std::function<void()> then = nullptr);
  void turn_page();
  void carry_out(std::size_t steps);
  void carry_out(const Action& action);
  void launch(const Launch& what);
  void remember(const nlohmann::json& event);
  void keep_stacks(int node, const control::Stacks& what);

  control::Loop& loop_;
  RunDir run_;
  Roster roster_;
  config::RunConfig config_;
  control::Key secret_;
  int term_, self_;
  std::function<void(const std::string&)> resigned_;
  bool over_ = false;
  std::shared_ptr<Journal> journal_;
  Supervisor supervisor_;
  Ordered ordered_;
  std::deque<Step> steps_;  ///< decided, and not yet carried out
  bool writing_ = false;    ///< the steps at the front are on their way to the disk
  std::unique_ptr<CommitDesk> desk_;
  ScriptStandIn script_;
  std::vector<Line> lines_;
  Scribe scribe_;
  control::Worker side_;  ///< for what nothing waits for: stacks, the ledger
  control::Loop::Handle tick_timer_, beat_timer_;
};

}  // namespace holdfast::launcher
