// A timer works off each of the three orders; no function here waits for a process.
//
// - clear() starts clear_on(), which signals all that is left of older attempts every 20 ms: SIGKILL, but to
//   the PMIx server for one second the signal by which it ends cleanly. Cleared is sent when no such process
//   is found and every rank that this agent has started has been waited for. After one second the leader is
//   told every 5 s what is left, and in which call of the kernel it hangs.
// - stop_ranks() leaves SLURM one second, and up to four more while SLURM is asked, to send its own SIGTERM.
//   signal_ranks() then signals the ranks that are not connected; `asked` keeps a rank from a second SIGTERM.
// - leave() acts once. leave_on() waits for the ranks, then ends the PMIx servers, and kills what is late. It
//   gives up after another clear_s, waits 5 s at most for the logs, and calls hooks_.left last.
//
// Without a descriptor no process can be seen: Cleared waits, and after 10 s a new agent replaces this one.
#include "launcher/agent/daemon/rank_ender.hpp"

#include <signal.h>

#include <algorithm>

#include "launcher/agent/daemon/agent_port.hpp"
#include "launcher/agent/daemon/guardian.hpp"
#include "launcher/agent/mover/mover.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis blind_limit{10000};  // then another process may have the descriptors that this one lacks
constexpr Millis clear_poll{20};
// Killed processes that are still there after so long may stay for long: what they wait for is looked at.
constexpr Millis slow_clear{1000}, slow_clear_poll{200}, between_looks{5000};
constexpr Millis pmix_grace{1000};   // a PMIx server ends in a tenth of it
constexpr Millis slurm_first{1000};  // SLURM signals one node after the other
constexpr Millis slurm_poll{50};
// SLURM signals every process of a step: the guardian, which passes it on, and this one.
constexpr Millis same_signal{2000};
constexpr Millis leave_poll{20};
constexpr Millis flush_time{300};  // for messages that are still on their way to another node
constexpr Millis logs_patience{5000};
}  // namespace

RankEnder::RankEnder(AgentHere& here, Hooks hooks)
    : here_(here), hooks_(std::move(hooks)), slurm_(here.loop, here.slurm, here.in.roster.job, here.node()) {}

/// Signals what attempts before this one have left, and returns it. Nothing: this process cannot look.
/// `orphans`: nobody knows their attempt.
std::optional<std::vector<RunProcess>> RankEnder::end_older(int attempt, int signal, int to_pmix,
                                                            bool orphans) {
  try {
    auto left = kill_older(here_.system, attempt, signal, to_pmix, orphans);
    cannot_look_since_.reset();
    return left;
  } catch (const Error& error) {
    if (!cannot_look_since_) {
      cannot_look_since_ = here_.loop.now();
      log::error("{}", error.what());
    } else if (here_.loop.now() - *cannot_look_since_ > blind_limit && !leave_timer_) {
      log::error("this agent gives way to a new one, as it cannot look at the processes of its node");
      here_.system.replace_agent();
    }
    return std::nullopt;
  }
}

// --- older attempts ---

void RankEnder::clear(int attempt, bool newer, const std::vector<pid_t>& ranks) {
  if (newer) {
    clear_orphans_ = true;
    if (Mover* mover = here_.system.mover()) mover->give_up_fetches();
  }
  leaving_.insert(ranks.begin(), ranks.end());
  clearing_ = attempt;
  pmix_limit_ = here_.loop.now() + pmix_grace;
  next_look_ = here_.loop.now() + slow_clear;
  try {
    here_.renew_scratch();
  } catch (const std::exception& error) {
    log::error("ranks cannot be started on this node: {}", error.what());
  }
  clear_on();
}

/// A rank is gone when the kernel has taken back all that it had, memory of GPUs, too: when it can be waited
/// for.
void RankEnder::clear_on() {
  std::erase_if(leaving_, [this](pid_t pid) { return !here_.system.awaits(pid); });
  for (const pid_t pid : leaving_) here_.system.signal(pid, SIGKILL);
  const bool slow = here_.loop.now() >= pmix_limit_;
  auto left = end_older(clearing_, SIGKILL, slow ? SIGKILL : pmix_end_signal(), clear_orphans_);
  if (left && left->empty() && leaving_.empty()) {
    clear_orphans_ = false;
    why_left_.reset();
    here_.system.remove_flight_records(clearing_);  // the leader needs them no more
    Cleared cleared{clearing_, here_.system.free_port(master_port_base + clearing_ % 1000)};
    if (const Mover* mover = here_.system.mover()) {
      cleared.mover = mover->port();
      cleared.sealed = mover->sealed();
    }
    return here_.tell_leader(cleared);
  }
  if (left && here_.loop.now() >= next_look_) tell_what_is_left(std::move(*left));
  clear_timer_ = here_.loop.after(slow ? slow_clear_poll : clear_poll, [this] { clear_on(); });
}

/// The leader names it when it blames this node, or waits.
void RankEnder::tell_what_is_left(std::vector<RunProcess> left) {
  next_look_ = here_.loop.now() + between_looks;
  for (const pid_t pid : leaving_)
    if (std::ranges::none_of(left, [&](const RunProcess& p) { return p.pid == pid; }))
      left.emplace_back().pid = pid;
  why_left_ = here_.system.why_left(std::move(left), [this, attempt = clearing_](const std::string& why) {
    if (attempt != clearing_) return;
    if (std::exchange(told_left_, why) != why) log::warn("attempt {} cannot start yet: {}", attempt, why);
    here_.tell_leader(ProcessesLeft{attempt, why});
  });
}

void RankEnder::kill_older_attempts() { end_older(here_.attempt(), SIGKILL, pmix_end_signal(), false); }

// --- this attempt ---

/// A second SIGTERM would abort many a save. SLURM may signal ranks at the same time, so it gets a moment to
/// be first.
void RankEnder::stop_ranks() {
  if (here_.promises.always_reports()) return;
  if (!asked_at_) asked_at_ = here_.loop.now();
  ask_timer_ = here_.loop.after(slurm_first, [this] { signal_ranks(); });
}

void RankEnder::signal_ranks() {
  const auto now = here_.loop.now();
  if (slurm_.awaited() && now < *asked_at_ + slurm_first + SlurmSigterm::answer_limit) {
    ask_timer_ = here_.loop.after(slurm_poll, [this] { signal_ranks(); });
    return;
  }
  bool again = false;
  for (auto& [number, rank] : here_.ranks) {
    if (rank.attempt != here_.attempt() || !rank.started || rank.asked || rank.linked()) continue;
    if (rank.ended) {
      if (!rank.link) stop_children(rank);
      rank.asked = true;
    } else if (rank.link && rank.heard && now < *rank.heard + 2 * slurm_first) {
      again = true;  // it has just lost its connection, and will make another one
    } else {
      send_sigterm(rank);
    }
  }
  if (again) ask_timer_ = here_.loop.after(slurm_first, [this] { signal_ranks(); });
}

/// Once, unless SLURM has sent it.
void RankEnder::send_sigterm(LocalRank& rank) {
  rank.asked = true;
  const bool by_slurm = slurm_.has_reached(rank.pid, here_.system);
  if (!by_slurm && !here_.system.signal(rank.pid, SIGTERM)) return;
  if (by_slurm)
    log::info("rank {}, process {}, is one of those to which SLURM has sent SIGTERM", rank.rank, rank.pid);
  else
    log::info("SIGTERM was sent to rank {}, process {}", rank.rank, rank.pid);
  rank.heard_orders.insert(RankHeard::What::sigterm);
  here_.tell_leader(RankHeard{rank.rank, rank.attempt, RankHeard::What::sigterm});
}

/// The children of a rank's script do not get the signal that the script got, and may have the state.
void RankEnder::stop_children(const LocalRank& rank) const {
  try {
    for (const auto& p : here_.system.processes(false))
      if (p.rank == rank.rank && p.attempt == rank.attempt && !slurm_.has_reached(p.pid, here_.system))
        here_.system.signal(p.pid, SIGTERM);
  } catch (const Error& error) {
    log::warn("the children of rank {} do not hear that it was told to end: {}", rank.rank, error.what());
  }
}

// --- the agent ---

void RankEnder::signalled(int signal) {
  slurm_.came(signal);
  if (signal == slurms_sigterm()) signal = SIGTERM;
  const auto now = here_.loop.now();
  if (signalled_ && now - *signalled_ < same_signal) return;
  if (std::exchange(signalled_, now)) {
    log::info("signal {} again: ending this node's ranks", signal);
    return leave(128 + signal, true);
  }
  log::info("signal {}: asking for a last checkpoint", signal);
  hooks_.request_drain({true, signal == SIGTERM ? "SIGTERM" : "SIGINT"});
  stop_ranks();  // there may be no leader at present
  // A little longer than the leader takes, whose Finish is preferred.
  const std::chrono::seconds drain_s(here_.in.config.checkpoint.drain_s);
  drain_timer_ = here_.loop.after(drain_s + same_signal, [this, signal, drain_s] {
    log::warn("no leader has ended the run within {} s: leaving", drain_s.count());
    leave(128 + signal);
  });
}

void RankEnder::leave(int code, bool at_once) {
  if (leave_timer_) return;
  here_.system.tell_guardian(true);  // to remove what it leaves may take long
  drain_timer_.reset();
  hooks_.leaving();
  const auto now = here_.loop.now();
  const std::chrono::seconds drain_s(here_.in.config.checkpoint.drain_s),
      stop_s(here_.in.config.supervise.stop_s);
  // Ranks that were told to end keep the rest of their time; a second SIGTERM would abort many a save.
  const bool asked = asked_at_ && !at_once;
  Leaving leaving{
      .code = code, .soonest = now + flush_time, .latest = asked ? *asked_at_ + drain_s : now + stop_s};
  // Those that follow orders, and have not taken the one to end.
  for (auto& [number, rank] : here_.ranks)
    if (asked && rank.started && !rank.ended && !rank.asked &&
        !rank.heard_orders.contains(RankHeard::What::stop)) {
      send_sigterm(rank);
      leaving.latest = std::max(leaving.latest, now + stop_s);
    }
  // Ranks that always report have saved what they could, and block SIGTERM.
  if (code != 0 && !asked) end_older(INT32_MAX, here_.promises.always_reports() ? SIGKILL : SIGTERM, 0);
  leave_timer_ = here_.loop.every(leave_poll, [this, leaving]() mutable { leave_on(leaving); });
}

/// Processes that were told to end get their time; messages that are still being sent get a moment.
void RankEnder::leave_on(Leaving& leaving) {
  const int clear_s = here_.in.config.supervise.clear_s;
  if (leaving.ranks_live && !here_.ranks.any_lives()) {  // a rank ends when its PMIx server does
    leaving.ranks_live = false;
    end_older(INT32_MAX, 0, pmix_end_signal());
  }
  const auto now = here_.loop.now();
  const bool late = now >= leaving.latest;
  const int signal = late ? SIGKILL : 0;
  const auto left = end_older(INT32_MAX, signal, signal);
  const bool given_up = late && now >= leaving.latest + std::chrono::seconds(clear_s);
  if ((left ? !left->empty() : !late) && !given_up) return;
  if (now < leaving.soonest) return;
  if (given_up && !leaving.logs_limit)
    log::error("{} processes have been killed and have not ended within {} s: they are left to SLURM",
               left ? std::to_string(left->size()) : "some", clear_s);
  // Storage that does not answer now has the logs until a moment ago.
  if (!leaving.logs_limit) leaving.logs_limit = now + logs_patience;
  if (!here_.spool.empty() && now < *leaving.logs_limit) return here_.spool.copy();
  here_.system.remove_flight_records(INT32_MAX);
  hooks_.left(leaving.code);
}

}  // namespace holdfast::launcher
