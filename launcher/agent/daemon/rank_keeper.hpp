#pragma once
// What an agent knows of the ranks of its node from their start to their end, and what it tells the leader of
// them.
//
// - A rank runs: RankStarted. It says where it is, which heartbeats tell the leader; what it says once
//   (restored, doubt, finished, failed) is told at once, and again to the next leader. Its votes are merged
//   with those of its neighbours.
// - A rank has ended: with 0, when nothing of what it has started goes on; else with the end of its log, if
//   that can be read in time. Then RankExited, after all signs of the node that may explain it.
// - This agent replaces another one: it finds the ranks that the other has started, by records in the memory
//   of the node, and learns of their ends by the guardian, whose children they are.
// - Orders that hold for all ranks of the attempt (save or end, hold) are told to each rank that connects.
#include "launcher/agent/daemon/rank_ender.hpp"
#include "launcher/agent/ranks/leftovers.hpp"
#include "launcher/agent/ranks/rank_record.hpp"
#include "launcher/agent/ranks/vote_merger.hpp"

namespace holdfast::launcher {

class RankKeeper {
 public:
  RankKeeper(AgentHere& here, RankEnder& ender) : here_(here), ender_(ender), reader_(here.loop) {}
  /// Takes over ranks that an earlier agent process started. `running`: all processes of the live attempt.
  void adopt(const std::vector<RankRecord>& records, const std::vector<RunProcess>& running);

  /// A process or an order of this attempt has come.
  LeadershipState::Fence admit(int attempt);
  /// Forgets ranks of older attempts; returns the processes of those that live.
  std::vector<pid_t> give_up_older(int attempt);

  // the start of a rank
  ChildHooks hooks_of(int rank, int attempt);
  void has_started(LocalRank& rank, pid_t pid);
  /// No process became its program.
  void has_no_program(int rank, int attempt, const Error& why);

  // its messages
  /// The process that speaks for it has connected, and is told which orders hold.
  void connected(LocalRank& rank, control::ChannelPtr channel);
  void hear(LocalRank& rank, control::Channel& from, const control::RankToAgent& message);

  // orders of the leader
  void pass_on(const control::Drain& order);
  void pass_on(const control::Pause& order);
  void settled(const control::CommitOutcome& outcome);
  void dump_stacks(const control::DumpStacks& order);
  /// A leader has connected: it is told all that still holds.
  void tell_all();

 private:
  void is_up(int rank, int attempt);
  void is_gone(int rank, int attempt, int status);
  void look_at_leftovers(int rank, int attempt, const std::shared_ptr<LeftoverWatch>& watch);
  void tell_end(int rank, int attempt, int status, const std::string& said);
  void adopt(const RankRecord& record);
  void await_end(int rank, int attempt, Clock::time_point limit);
  void keep_final_state(const control::RankFinished& finished) const;
  void keep_metrics(LocalRank& rank, const control::RankMetrics& said);
  void vote(const control::RankVote& vote);
  void tell_votes(int attempt, std::int64_t step);

  AgentHere& here_;
  RankEnder& ender_;
  VoteMerger votes_;
  std::map<std::pair<int, std::int64_t>, control::Loop::Handle> vote_timers_;  ///< by (attempt, step)
  control::Worker reader_;                      ///< reads the logs of ranks that have ended
  std::optional<control::Drain> drain_;         ///< for the ranks of this attempt
  bool paused_ = false;                         ///< the ranks of every attempt
  std::map<int, control::Loop::Handle> dumps_;  ///< of stacks, by rank
};

}  // namespace holdfast::launcher
