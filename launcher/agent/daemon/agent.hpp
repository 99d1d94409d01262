#pragma once
// The daemon of a node. It starts, watches and ends the node's ranks, tells the leader about them, and is
// ready to lead. It decides nothing about the run: the leader does (leader.hpp), whichever agent hosts it.
//
//   who connects   what for                                             answered by
//   rank           progress, restored, votes, finished, failed          commit outcomes, drain, taken
//   pmix           how MPI ranks find it; fences and questions          the same of other nodes
//   leader         clear, start, commit outcomes, drain, finish         heartbeats, all messages of its ranks
//   candidate      may I lead?                                          answer
//   job monitor    is the agent there? drain requests                   the handshake alone
//   caller         orders for the leader; faults of a drill             the leader's answer, or ours
#include <memory>
#include <set>

#include "launcher/agent/leader/candidate.hpp"
#include "launcher/agent/mover/mover.hpp"
#include "launcher/agent/ranks/flights.hpp"
#include "launcher/agent/ranks/leftovers.hpp"
#include "launcher/agent/ranks/local_ranks.hpp"
#include "launcher/agent/ranks/log_spool.hpp"
#include "launcher/agent/ranks/node_system.hpp"
#include "launcher/agent/ranks/rank_record.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "launcher/agent/ranks/signs_of_life.hpp"
#include "launcher/agent/ranks/vote_merger.hpp"
#include "launcher/agent/ranks/warm_ranks.hpp"
#include "launcher/agent/signs/signs.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/base/clock.hpp"
#include "src/base/rank_env.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/rank_promises.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

struct AgentInput {
  RunDir run;
  Scratch scratch;  ///< with the name of the node, which is one of the roster
  Roster roster;
  config::RunConfig config;
  config::ClusterFacts cluster;
  control::Key secret;
  std::filesystem::path local_level;  ///< its folder on this node; empty: there is none
  SignPlaces signs;
};

class Agent {
 public:
  /// Throws Error when another agent of this run runs on the node. `ended` is called when nothing is left to
  /// do, with the exit code.
  Agent(control::Loop& loop, NodeSystem& system, std::shared_ptr<slurm::Cluster> slurm, AgentInput in,
        std::function<void(int exit_code)> ended);
  ~Agent();
  void signalled(int signal);
  const Candidate& candidate() const { return candidate_; }

 private:
  /// A connection and its hello.
  struct Peer {
    control::ChannelPtr channel;
    control::Hello hello;
    bool known = false;
    ProcessId process;    ///< of a rank: who has connected
    bool mute = false;    ///< it does not speak for its rank
    std::string refused;  ///< why its last message was that was refused
  };

  // agent.cpp
  void accept(control::ChannelPtr channel);
  void hear(const std::shared_ptr<Peer>& peer, std::string_view line);
  void on_hello(const std::shared_ptr<Peer>& peer, const control::Hello& hello);
  void accept_leader(const std::shared_ptr<Peer>& peer, const control::Hello& hello);
  bool admit(const std::shared_ptr<Peer>& peer);
  void accept_rank(const std::shared_ptr<Peer>& peer, const control::Hello& hello);
  void silence(Peer& peer, LocalRank& rank, const std::string& why);
  void silence_others(LocalRank& rank);
  void answer_candidate(const control::ChannelPtr& channel, const control::Hello& hello);
  void adopt_what_runs();
  void open_scratch();
  void renew_scratch();
  void request_drain(const control::Drain& what);
  void leave(int code, bool at_once = false);
  std::optional<std::vector<RunProcess>> end_older(int attempt, int signal, int to_pmix, bool orphans = true);

  // agent_orders.cpp
  void tell_leader(const control::Message& message);
  control::Beat beat() const;
  void from_leader(const control::LeaderToAgent& message);
  void clear(int attempt);
  void clear_on();
  void tell_what_is_left(std::vector<RunProcess> left);
  void dump_stacks_of(int attempt, int rank);
  void look_outside();
  void from_caller(const std::shared_ptr<Peer>& peer, const control::CallerToAgent& message);
  void answer_caller(const control::OrderTaken& answer);
  void leader_is_gone();
  std::string inject_fault(const control::Inject& fault);

  // agent_ranks.cpp
  void from_rank(const std::shared_ptr<Peer>& peer, const control::RankToAgent& message);
  void from_pmix(const control::PmixToAgent& message);
  void tell_pmix(const control::Message& message) const;
  void start_ranks(const control::StartRanks& order);
  void start_pmix(const control::StartRanks& order);
  void begin_copies(const control::StartRanks& order);
  void fetch_state(const control::FetchState& order);
  void give_buffers(RankEnv& rank, const control::StartRanks& order) const;
  bool copies_buffers(const control::StartRanks& order) const;
  Mover::Place mover_at(int node, int port) const;
  void start_rank(int rank);
  void warm_ranks();
  void pmix_is_gone(int attempt, const std::string& why);
  void keep_metrics(LocalRank& rank, const control::RankMetrics& said);
  void vote(const control::RankVote& vote);
  void tell_votes(int attempt, std::int64_t step);
  void rank_is_up(int rank, int attempt);
  void rank_has_no_program(int rank, int attempt, const Error& why);
  void rank_is_gone(int rank, int attempt, int status);
  void look_at_leftovers(int rank, int attempt, const std::shared_ptr<LeftoverWatch>& watch);
  void tell_end(int rank, int attempt, int status, const std::string& said);
  void keep_record(const RankRecord& record) const;
  void keep_final_state(const control::RankFinished& finished) const;
  void adopt_rank(const RankRecord& record);
  void await_end(int rank, int attempt, Clock::time_point limit);
  void ask_ranks_to_end();
  void signal_ranks();
  void send_sigterm(LocalRank& rank);
  void ask_whom_slurm_signals();
  void ask_its_children(const LocalRank& rank) const;
  void forget_drain();
  /// SLURM has sent SIGTERM to all processes of the step that it knows of, and not to the first alone.
  bool slurm_signals_all() const { return slurm_signalled_step_ && signalled_directly_; }
  /// Where SLURM cannot be asked (in an image, say), it is taken to know all but those whose names have
  /// blanks.
  bool slurm_has_signalled(pid_t pid) const {
    if (!slurm_signals_all()) return false;
    if (slurm_knows_) return slurm_knows_->contains(pid);
    const auto facts = system_.process(pid);
    return facts && !facts->blank_in_name;
  }
  Command attempt_command(std::vector<std::string> argv, const control::StartRanks& order) const;

  control::Loop& loop_;
  NodeSystem& system_;
  RunDir run_;
  Scratch scratch_;
  std::filesystem::path local_level_;
  std::string node_;
  Roster roster_;
  int index_;  ///< of this node in the roster
  std::function<void(int)> ended_;
  std::optional<Clock::time_point> cannot_look_since_;  ///< at the processes of the node
  config::RunConfig config_;
  config::RankPromises promises_;
  config::ClusterFacts cluster_;
  control::Key secret_;
  files::Fd claim_;  ///< a lock on the scratch folder, while this process lives
  LogSpool spool_;
  Flights flights_;
  LocalRanks ranks_;
  VoteMerger votes_;
  SignsOfLife life_;      ///< of ranks that do not report
  int life_attempt_ = 0;  ///< whose ranks they are
  std::map<std::pair<int, std::int64_t>, control::Loop::Handle> vote_timers_;  ///< by (attempt, step)
  std::unique_ptr<Signs> signs_;
  std::unique_ptr<WarmRanks> warm_;
  control::Worker reader_;  ///< reads the logs of ranks that have ended
  int clearing_ = 0;        ///< attempt whose Clear has not been answered yet
  Clock::time_point clear_limit_;
  Clock::time_point next_look_;  ///< at why old processes have not ended
  std::string told_left_;        ///< the last answer
  /// Orphans are of older attempts. A leader repeats Clear to an agent that was replaced: they are of this
  /// one.
  bool clear_orphans_ = false;
  std::set<pid_t> leaving_;                      ///< ranks of older attempts that this agent has started
  std::optional<control::StartRanks> starting_;  ///< the ranks of this attempt, ...
  /// ... and of those that speak MPI the variables from their PMIx server.
  std::map<int, std::vector<std::string>> pmix_variables_;
  int pmix_attempt_ = 0;                         ///< of the live PMIx server here; 0: none
  control::ChannelPtr pmix_;                     ///< its connection
  std::optional<control::Drain> drain_;          ///< ordered by the leader for the ranks of this attempt
  std::optional<control::Drain> drain_request_;  ///< received here; every new leader is told
  bool paused_ = false;                          ///< ordered by the leader for the ranks of every attempt
  std::optional<Clock::time_point> signalled_;
  bool slurm_signalled_step_ = false, signalled_directly_ = false;
  std::shared_ptr<slurm::Cluster> slurm_;
  control::Worker slurm_asker_;
  bool slurm_asked_ = false, slurm_answered_ = false;
  std::optional<std::set<int>> slurm_knows_;  ///< the processes of the job here, when it signalled them
  /// When ranks that only signals reach were first told to end.
  std::optional<Clock::time_point> asked_at_;
  std::map<std::string, std::weak_ptr<Peer>> callers_;  ///< by the id of their order, which the leader has
  std::map<int, control::Loop::Handle> dumps_;          ///< of stacks, by rank

  Candidate candidate_;
  LeadershipState& leadership_;  ///< the candidate's
  control::ChannelPtr leader_;
  int followed_ = 0;  ///< the term of the last leader that this process has followed

  control::Loop::Handle tcp_, local_, alive_timer_, beat_timer_, signs_timer_, watch_timer_, clear_timer_,
      leave_timer_, drain_timer_, ask_timer_, injected_, why_left_;
  std::map<control::Channel*, std::shared_ptr<Peer>> peers_;
};

}  // namespace holdfast::launcher
