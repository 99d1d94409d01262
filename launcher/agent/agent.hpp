#pragma once
// The daemon of a node. It starts, watches and ends the node's ranks, tells the leader about them, and stands
// ready to lead. It decides nothing about the run: that is the leader's (leader.hpp), whichever agent hosts
// it.
//
//   who connects   what for                                             answered by
//   rank           progress, restored, votes, finished, failed          verdicts, drain, taken
//   shim           a rank's start and end under mpirun                  taken
//   leader         clear, start, verdicts, drain, finish                beats, and everything its ranks say
//   candidate      may I lead?                                          answer
//   spawner        run mpirun's daemon here                             its end
//   keeper         are you there? drain                                 the handshake alone
//   caller         orders for the leader; faults for us, in a drill     what became of it
#include <memory>

#include "launcher/agent/campaign.hpp"
#include "launcher/agent/children.hpp"
#include "launcher/agent/flights.hpp"
#include "launcher/agent/leader.hpp"
#include "launcher/agent/local_ranks.hpp"
#include "launcher/agent/node_care.hpp"
#include "launcher/agent/rank_record.hpp"
#include "launcher/agent/rank_start.hpp"
#include "launcher/agent/scratch.hpp"
#include "launcher/agent/signs.hpp"
#include "launcher/agent/standing.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/base/clock.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class Agent {
 public:
  /// Reads the run directory; throws Error when it is unusable or another agent of this run lives on the
  /// node.
  Agent(control::Loop& loop, RunDir run, std::string node);
  ~Agent();
  /// Until the leader says Finish (its code). SIGTERM and SIGINT ask the leader to drain and stop the run;
  /// the second one, or the end of the drain's time, ends this agent alone (128 + signal).
  int serve();

 private:
  /// A connection and what its hello said.
  struct Guest {
    control::ChannelPtr channel;
    control::Hello hello;
    bool known = false;
  };

  // agent.cpp
  void accept(control::ChannelPtr channel);
  void welcome(const std::shared_ptr<Guest>& guest, const control::Hello& hello);
  void welcome_leader(const std::shared_ptr<Guest>& guest, const control::Hello& hello);
  void welcome_rank(const std::shared_ptr<Guest>& guest, const control::Hello& hello);
  void answer_candidate(const control::ChannelPtr& channel, const control::Hello& hello);
  void adopt_what_runs();
  void open_scratch();
  void renew_scratch();
  void wish(const control::Drain& what);
  void signalled(int signal);
  void leave(int code, bool at_once = false);
  void end_helpers();

  // agent_orders.cpp
  void tell_leader(const control::Message& message);
  control::Beat beat() const;
  void from_leader(const control::Message& message);
  void clear(int attempt);
  void clear_on();
  void dump_stacks_of(int attempt, int rank);
  void from_caller(const std::shared_ptr<Guest>& guest, const control::Message& message);
  void answer_caller(const control::OrderTaken& answer);
  void leader_is_gone();
  std::string break_something(const control::Inject& fault);

  // agent_ranks.cpp
  void from_rank(const std::shared_ptr<Guest>& guest, const control::Message& message);
  void run_daemon(const std::shared_ptr<Guest>& guest, const std::string& command);
  void start_ranks(const control::StartRanks& order);
  void start_mpirun(const control::StartMpirun& order);
  void mpirun_is_gone(int attempt, int status);
  void daemon_is_gone(int attempt, int status, const std::string& why);
  void rank_is_up(LocalRank& rank, pid_t pid);
  void rank_is_gone(int rank, int attempt, int status);
  void tell_end(int rank, int attempt, int status, const std::string& said);
  void keep_record(const RankRecord& record) const;
  void adopt_rank(const RankRecord& record);
  void await_end(int rank, int attempt, const Deadline& limit);
  void ask_ranks_to_end();
  void ask_its_children(const LocalRank& rank) const;
  void forget_drain();
  bool ranks_heard_slurm() const { return slurm_signalled_step_ && signalled_directly_; }
  Command attempt_command(std::vector<std::string> argv, int epoch, int attempt, int world,
                          const std::optional<Restores>& restores = std::nullopt) const;

  // agent_lead.cpp
  void watch_leader();
  void campaign(int highest, const std::vector<bool>& lost);
  void campaign_is_over(bool won, int epoch);
  void lead(int epoch);
  void lead_with(int epoch, Inheritance inherited);
  void cannot_lead(const std::string& why);

  control::Loop& loop_;
  RunDir run_;
  std::string node_;
  Roster roster_;
  int index_;  ///< of this node in the roster
  config::RunConfig config_;
  config::ClusterFacts cluster_;
  control::Key secret_;
  Scratch scratch_;
  files::Fd claim_;  ///< on the scratch, as long as this process lives
  Flights flights_;
  Children children_;
  LocalRanks ranks_;
  NodeCare care_;
  std::unique_ptr<Signs> signs_;
  control::Worker reader_;               ///< of the logs of ranks that have ended
  int clearing_ = 0;                     ///< attempt whose Clear has not been answered yet
  int mpirun_attempt_ = 0;               ///< of the live mpirun here; 0: none
  std::optional<control::Drain> drain_;  ///< ordered by the leader for the ranks of this attempt
  std::optional<control::Drain> wish_;   ///< asked for here, for every leader to come
  bool paused_ = false;                  ///< ordered by the leader for the ranks of every attempt
  std::optional<Clock::time_point> signalled_;
  bool slurm_signalled_step_ = false, signalled_directly_ = false;
  std::optional<Clock::time_point>
      asked_at_;  ///< ranks that hear no other word have their SIGTERM since then
  std::map<std::string, std::weak_ptr<Guest>> callers_;  ///< by the id of the order that the leader has
  std::map<int, control::Loop::Handle> dumps_;           ///< of stacks, by rank

  Standing standing_;  ///< whom we follow, and which attempt
  control::ChannelPtr leader_;
  std::unique_ptr<Campaign> campaign_;
  std::unique_ptr<Leader> leading_;
  control::Worker arbiter_;  ///< asks the run directory, which may hang
  bool looking_ = false;
  control::Loop::Handle beginning_;  ///< to lead: until the run directory has answered, or this runs out
  std::string trouble_;              ///< with the run directory, when it was last asked; "": none

  std::unique_ptr<control::Listener> tcp_, local_;
  control::Loop::Handle beat_timer_, signs_timer_, watch_timer_, signals_, clear_timer_, leave_timer_,
      drain_timer_, ask_timer_, injected_;
  std::map<control::Channel*, std::shared_ptr<Guest>> guests_;
  int exit_code_ = 0;
};

}  // namespace holdfast::launcher
