#pragma once
// The leader in an agent, modelled around the production Supervisor: links to the agents, the coordination of
// checkpoint commits, and decisions carried out in their order: first recorded, then acted upon. It may be
// stopped or die between any two.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "launcher/agent/leader/leadership_state.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "tests/sim/network.hpp"

namespace holdfast::sim {

class World;

class Leader {
 public:
  struct Before {
    int node = -1, term = 0;
  };
  /// `heard`: what this node heard last of an earlier leader.
  Leader(World& world, const ProcessPtr& process, int term, launcher::LeadershipState::Heard heard);
  ~Leader();
  int term() const { return term_; }
  const launcher::Supervisor& supervisor() const { return supervisor_; }
  /// All its decisions are on the disk.
  bool settled() const { return steps_.empty() && !batch_; }
  control::OrderTaken order(const control::Order& what);

 private:
  struct AgentLink {
    ConnectionPtr connection;
    bool dialling = false, greeted = false;
    double next_dial = 0;
  };
  struct Ordered {
    int attempt = 0;
    std::map<int, control::StartRanks> starts;
    std::optional<control::Drain> drain;
    bool paused = false;
    std::optional<int> finish;
  };
  using Step = std::variant<launcher::Action, std::function<void()>>;
  struct Batch {
    std::vector<launcher::LogEntry> entries;
    std::optional<nlohmann::json> result;
    std::size_t steps = 0;
    double since = 0;
    std::optional<double> higher_since;  ///< a higher term was seen; its taker may renounce it
  };
  struct Pending {
    std::map<int, std::optional<std::string>> votes;  ///< rank -> digest; nothing: the vote was no
  };
  void connect(int node);
  void receive(int node, const control::Message& message);
  void link_lost(int node);
  void tick();
  void introduce_itself(int node);
  void act(std::function<void()> then = nullptr);
  void write_next_batch();
  void write_batch();
  bool replaced();
  bool storage_answers_others() const;
  void append_batch();
  void carry_out();
  void carry_out(const launcher::Action& action);
  void launch(const launcher::Launch& what);
  void check(const launcher::Event& event);
  void check_placement();
  void send(int node, const control::Message& message);
  void send_all(const control::Message& message);
  void resign(const std::string& why);
  bool over() const { return !*alive_; }
  void later(double seconds, std::function<void()> what);
  void covered(const char* event);

  void begin(int term, int attempt, int world_size, const std::map<std::int64_t, bool>& decided = {});
  void take(int node, const control::NodeVotes& votes);
  void settle(std::int64_t step);
  void conclude(std::int64_t step, int attempt, bool durable, const std::string& note);

  World& world_;
  ProcessPtr process_;
  int term_;
  Before before_;
  launcher::Supervisor supervisor_;
  std::vector<AgentLink> links_;
  std::vector<double> heard_;  ///< when a node's last beat came; 0: never
  std::set<std::string> out_;  ///< nodes lost or evicted by the decisions so far
  Ordered ordered_;
  std::deque<Step> steps_;                     ///< decided, but not yet carried out
  std::optional<Batch> batch_;                 ///< the steps at the front, being written
  std::optional<double> behind_others_since_;  ///< shared storage answers others, and not this node
  std::size_t on_record_ = 0;                  ///< steps at the front that are on record
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  int generation_term_ = 0, generation_attempt_ = 0, world_size_ = 0;
  std::map<std::int64_t, Pending> pending_;
  std::map<std::int64_t, control::CommitOutcome> commit_outcomes_;
  bool busy_ = false;
};

}  // namespace holdfast::sim
