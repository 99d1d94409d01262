#pragma once
// How an agent ends processes of the run on its node. Three orders end them:
//
// - Clear: another attempt is to start. All that older attempts have left is killed again and again until
//   nothing is left; then the leader is told, and may start ranks here.
// - Stop: the run is to save and end. Ranks that follow orders hear it from the leader; programs that only
//   signals reach get SIGTERM, once.
// - Leave: the run is over, or this node is given back. Ranks that were told to end keep the rest of their
//   time, all others get SIGTERM or SIGKILL; logs are copied, the memory of the node is freed, and the agent
//   ends.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/daemon/agent_here.hpp"
#include "launcher/agent/daemon/slurm_sigterm.hpp"

namespace holdfast::launcher {

class RankEnder {
 public:
  struct Hooks {
    std::function<void(const control::Drain&)> request_drain;  ///< of the leader
    std::function<void()> leaving;                             ///< once: nothing is to be begun any more
    std::function<void(int code)> left;                        ///< once: nothing is left of the run here
  };
  RankEnder(AgentHere& here, Hooks hooks);

  /// Ends attempts before this one, which the leadership has admitted. `newer`: it is news; else a leader
  /// repeats itself, perhaps to an agent that was replaced. `ranks`: of older attempts, that this agent
  /// awaits.
  void clear(int attempt, bool newer, const std::vector<pid_t>& ranks);
  /// Kills what has shown up of older attempts, without waiting for it.
  void kill_older_attempts();

  /// Programs that do not report are told to end by SIGTERM.
  void stop_ranks();
  bool stops_ranks() const { return asked_at_.has_value(); }
  /// A rank has ended that was told to: so are the processes that it leaves behind.
  void stop_children(const LocalRank& rank) const;
  /// Another attempt lives: it was not told to end.
  void forget_stop() { asked_at_.reset(), ask_timer_.reset(); }

  /// The whole job is told to end, or this node alone: in both cases the state must be saved for the next
  /// job. The second signal ends the agent.
  void signalled(int signal);
  /// `at_once`: without waiting for a save that is under way.
  void leave(int code, bool at_once = false);

 private:
  std::optional<std::vector<RunProcess>> end_older(int attempt, int signal, int to_pmix, bool orphans = true);
  void clear_on();
  void tell_what_is_left(std::vector<RunProcess> left);
  void signal_ranks();
  void send_sigterm(LocalRank& rank);
  struct Leaving {
    int code = 0;
    Clock::time_point soonest, latest;
    bool ranks_live = true;
    std::optional<Clock::time_point> logs_limit = {};
  };
  void leave_on(Leaving& leaving);

  AgentHere& here_;
  Hooks hooks_;
  std::optional<Clock::time_point> cannot_look_since_;  ///< at the processes of the node

  int clearing_ = 0;  ///< attempt whose Clear has not been answered yet
  Clock::time_point pmix_limit_;
  Clock::time_point next_look_;  ///< at why old processes have not ended
  std::string told_left_;        ///< the last answer
  /// Orphans are of older attempts. A leader repeats Clear to an agent that was replaced: they are of this
  /// one.
  bool clear_orphans_ = false;
  std::set<pid_t> leaving_;  ///< ranks of older attempts that this agent has started

  std::optional<Clock::time_point> signalled_;
  SlurmSigterm slurm_;
  std::optional<Clock::time_point> asked_at_;  ///< when ranks that only signals reach were first told to end
  control::Loop::Handle clear_timer_, why_left_, ask_timer_, drain_timer_, leave_timer_;
};

}  // namespace holdfast::launcher
