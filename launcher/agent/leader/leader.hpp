#pragma once
// The leader: it connects to every agent, passes their messages to the supervisor (which decides), and
// carries out the actions of the supervisor in their order: each is first recorded, then acted upon.
#include <deque>
#include <functional>
#include <memory>
#include <variant>

#include "launcher/agent/leader/batch_script_fallback.hpp"
#include "launcher/agent/leader/commit_coordinator.hpp"
#include "launcher/agent/leader/fence_hub.hpp"
#include "launcher/agent/leader/journal_writer.hpp"
#include "launcher/agent/leader/leadership_state.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/supervisor.hpp"
#include "src/config/run_config.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

/// What a leader has at the start of its term.
struct TermStart {
  std::shared_ptr<Journal> journal;  ///< of its term
  RunState state;                    ///< replayed from the event log; its own election is the last event
  std::string last_leader;           ///< the node of the leader before, ...
  int last_term = 0;                 ///< ... and its term; 0: there was none
};
/// Records that node `self` leads in `term`, which it has taken. May wait long for the run directory, so it
/// must not be called in a loop's thread. `unix_now`: the time of what it records. Throws Error.
TermStart start_term(const RunDir& run, const Roster& roster, int term, int self,
                     const std::function<double()>& unix_now = unix_seconds);

/// The command that drains a node whose hardware has failed in SLURM, for an administrator; "": the attempt
/// did not end so.
std::string admin_line(const events::AttemptEnded& ended);

class Leader {
 public:
  /// Leads in `term`, from `start`; `heard`: what this node heard last of an earlier leader. `resigned` is
  /// called once, and then this object must be destroyed. While the run directory does not answer, for two
  /// minutes at most, decisions wait and everything else goes on.
  Leader(control::Loop& loop, RunDir run, Roster roster, const config::RunConfig& config,
         const control::Key& secret, std::shared_ptr<slurm::Cluster> cluster, int term, int self,
         TermStart start, LeadershipState::Heard heard, std::function<void(const std::string& why)> resigned);
  ~Leader();
  int term() const { return term_; }
  /// For who watches: it may be ahead of what is on record, unless `settled`.
  const Supervisor& supervisor() const { return supervisor_; }
  bool settled() const { return steps_.empty() && !writing_; }

 private:
  struct Connection {
    control::ChannelPtr channel;
    bool greeted = false;       ///< the agent has answered our hello
    bool storage_gone = false;  ///< it says that shared storage does not answer it
    Clock::time_point next_dial;
    int mover = 0;      ///< port of its mover
    int free_port = 0;  ///< on which a program could listen there when it was cleared
  };
  /// What has been ordered so far. The supervisor may be ahead of it: its newest decisions are being written.
  struct Ordered {
    int attempt = 0;
    std::map<int, control::FetchState> fetches;  ///< of that attempt, by node
    std::map<int, control::StartRanks> starts;   ///< of that attempt, by node
    std::optional<control::Drain> drain;
    bool paused = false;
    std::optional<int> finish;
  };
  /// An order that ranks are told of, and that its caller waits for.
  struct ToldOrder {
    int node = -1;  ///< whose agent has passed it on
    control::Order::Verb verb = control::Order::Verb::save;
    control::OrderTaken says;
    Clock::time_point limit;
  };
  using Step = std::variant<Action, std::function<void()>>;

  // leader.cpp
  void connect(int node);
  void greet(int node);
  void take(int node, control::AgentToLeader message);
  void call_again(const std::string& lost);
  void connection_lost(int node, const std::string& why);
  void answer_order(ToldOrder told);
  void answer_orders();
  void take_fence(int node, control::PmixFence fence);
  void send_fenced();
  void ask_node_of(int node, control::PmixQuestion question);
  void take_signs(int node, const control::NodeSigns& signs);
  bool storage_answers_others() const;
  void tick();
  void send(int node, const control::Message& message);
  void send_all(const control::Message& message);
  bool script_is_lost() const;
  void resign(const std::string& why);
  const Roster::Node& node(int n) const { return roster_.nodes[n]; }

  // leader_acts.cpp
  void act(std::function<void()> then = nullptr);
  void write_next_batch();
  void carry_out(std::size_t steps);
  void carry_out(const Action& action);
  void fetch(const FetchStates& what);
  void judge_and_launch(const Launch& what);
  void launch(const Launch& what);
  void remember(const LogEntry& event);
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
  std::vector<ToldOrder> told_orders_;
  std::deque<Step> steps_;  ///< decided, not yet carried out
  bool writing_ = false;    ///< the steps at the front are being written to disk
  std::unique_ptr<CommitCoordinator> coordinator_;
  FenceHub fences_;
  /// Answers to fences, which wait for their turn, and to whom they go.
  std::deque<std::pair<int, std::shared_ptr<const std::string>>> fenced_;
  control::Loop::Handle fenced_timer_;
  BatchScriptFallback script_;
  std::vector<Connection> connections_;
  /// Shared storage answers others, and not this node. When it hangs for all, or answers all again, agents
  /// tell so one after the other.
  std::optional<Clock::time_point> behind_others_since_;
  JournalWriter journal_writer_;
  control::Worker side_;   ///< writes what nothing waits for: stacks, the ledger
  control::Worker judge_;  ///< reads the checkpoint that a program is to begin from
  control::Loop::Handle judge_timer_;
  control::Loop::Handle tick_timer_, heartbeat_timer_;
};

}  // namespace holdfast::launcher
