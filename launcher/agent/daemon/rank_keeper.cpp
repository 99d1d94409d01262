// The life of a rank here: has_started() writes its record into the node's memory, is_up() reports that its
// process has become its program, hear() takes its messages, and is_gone() acts once, at its end. After exit
// code 0 look_at_leftovers() looks at the processes that it has left every 0.25 s, until they have ended or
// are found to be harmless. If they are found to be what trains, the rank is reported as failed, and not as
// ended. A rank that has reported by itself or was told to end is not looked at. After another status the end
// of the log is read in a thread, for which its report waits 200 ms at most.
//
// A rank that an earlier agent has started is no child of this one: await_end() waits 2 s for the guardian to
// record its status, and takes -1 without it. Reports that a new leader needs stay in LocalRank, and votes in
// VoteMerger; tell_all() repeats them. No shared storage is used: logs and metrics go through the log spool.
// A record that cannot be written is logged, and the rank goes on.
#include "launcher/agent/daemon/rank_keeper.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/agent/mover/mover.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis log_limit{200};                   // to read the end of its log
constexpr Millis reap_poll{10}, reap_limit{2000};  // until the guardian has recorded how a rank ended
constexpr int cannot_start = 127;                  // as in shells
constexpr Millis leftover_poll{static_cast<int>(1e3 * LeftoverWatch::look_every_s)};
}  // namespace

// --- attempts ---

LeadershipState::Fence RankKeeper::admit(int attempt) {
  const auto fence = here_.leadership.admit(attempt);
  if (fence == LeadershipState::Fence::newer) {
    drain_.reset();
    ender_.forget_stop();
  }
  return fence;
}

std::vector<pid_t> RankKeeper::give_up_older(int attempt) {
  std::vector<pid_t> living;
  for (const auto& [number, rank] : here_.ranks)
    if (rank.attempt < attempt && rank.lives()) living.push_back(rank.pid);
  here_.ranks.forget_older(attempt);
  votes_.forget_older(attempt);
  here_.spool.forget_older(attempt);
  return living;
}

/// Ranks that report connect again by themselves; how a rank ends its record shows.
void RankKeeper::adopt(const std::vector<RankRecord>& records, const std::vector<RunProcess>& running) {
  for (const auto& r : records) {
    if (r.attempt != here_.attempt()) continue;
    if (r.status || here_.system.is_guardians(r.pid))
      adopt(r);
    else  // the agent before has seen its end; it must not be started again
      here_.ranks.at(r.rank, r.attempt).ended = true;
  }
  for (const auto& p : running)  // the record of a rank may be lost
    if (p.rank >= 0 && p.leads_session && !here_.ranks.find(p.rank, p.attempt))
      adopt({p.rank, p.attempt, p.pid, {}});
  if (here_.ranks.begin() != here_.ranks.end()) here_.signs.attempt_begins(here_.attempt());
}

void RankKeeper::adopt(const RankRecord& record) {
  log::info("rank {} of attempt {} is process {}, started by an earlier agent", record.rank, record.attempt,
            record.pid);
  LocalRank& rank = here_.ranks.at(record.rank, record.attempt);
  rank.started = true;
  rank.pid = record.pid;
  rank.finished = record.finished;
  here_.system.watch(record.pid, [this, number = record.rank, attempt = record.attempt] {
    await_end(number, attempt, here_.loop.now() + reap_limit);
  });
}

/// The rank was a child of the guardian, which records its status.
void RankKeeper::await_end(int number, int attempt, Clock::time_point limit) {
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank || rank->ended) return;
  for (const auto& record : rank_records(here_.in.scratch))
    if (record.rank == number && record.pid == rank->pid && record.status)
      return is_gone(number, attempt, *record.status);
  if (here_.loop.now() >= limit) return is_gone(number, attempt, -1);
  rank->grace = here_.loop.after(reap_poll, [=, this] { await_end(number, attempt, limit); });
}

// --- its start ---

ChildHooks RankKeeper::hooks_of(int number, int attempt) {
  return {[=, this](int status) { is_gone(number, attempt, status); },
          [=, this](const Error& why) { has_no_program(number, attempt, why); },
          [=, this] { is_up(number, attempt); }};
}

/// Without the record, an agent that replaces this one does not know the rank, and the attempt ends.
void RankKeeper::has_started(LocalRank& rank, pid_t pid) {
  rank.pid = pid;
  try {
    keep_rank_record(here_.in.scratch, {rank.rank, rank.attempt, pid, {}});
  } catch (const Error& error) {
    log::warn("the record of rank {} cannot be written: {}", rank.rank, error.what());
  }
}

void RankKeeper::is_up(int number, int attempt) {
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank || rank->started || rank->ended) return;
  rank->started = true;
  here_.tell_leader(RankStarted{number, attempt, rank->pid});
  if (ender_.stops_ranks()) ender_.stop_ranks();
}

void RankKeeper::has_no_program(int number, int attempt, const Error& why) {
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank || rank->failed) return;
  rank->pid = 0;
  here_.tell_leader(*(rank->failed = RankFailed{number, attempt, cannot_start, why.what()}));
}

// --- its end ---

void RankKeeper::is_gone(int number, int attempt, int status) {
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank || rank->ended) return;
  rank->ended = true;
  if (rank->asked) ender_.stop_children(*rank);
  if (status == 0)
    return look_at_leftovers(
        number, attempt,
        std::make_shared<LeftoverWatch>(here_.system.cpu_seconds_of(rank->pid), here_.loop.steady_seconds()));
  if (rank->failed) return tell_end(number, attempt, status, rank->failed->why);
  // The end of its log often tells why; a file system that does not answer must not delay the report of the
  // end.
  const auto told = std::make_shared<bool>(false);
  const auto tell = [=, this](const std::string& said) {
    if (!std::exchange(*told, true)) tell_end(number, attempt, status, said);
  };
  rank->grace = here_.loop.after(log_limit, [tell] { tell(""); });
  reader_.ask([log = spooled_path(here_.in.scratch, here_.in.run,
                                  rank_log(here_.in.run, attempt, number))] { return log_tail(log); },
              tell);
}

/// The rank has ended with 0. What it has started may go on, and may be what trains. The end of a rank that
/// reports, or that was told to end, says enough.
void RankKeeper::look_at_leftovers(int number, int attempt, const std::shared_ptr<LeftoverWatch>& watch) {
  using Found = LeftoverWatch::Verdict;
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank) return;
  // A process that the rank has started may be what reports, and go on.
  const bool reported_itself =
      rank->reports() && (!rank->speaker || rank->speaker->pid <= 0 || rank->speaker->pid == rank->pid);
  const bool says_enough =
      here_.promises.one_process || rank->finished || reported_itself || rank->asked || ender_.stops_ranks();
  if (says_enough) return tell_end(number, attempt, 0, "");
  std::vector<Leftover> left;
  try {
    left = here_.system.processes_of_rank(number, attempt);
  } catch (const Error& error) {
    log::warn("it is not known what rank {} has left behind: {}", number, error.what());
  }
  switch (watch->judge(std::move(left), here_.loop.steady_seconds())) {
    case Found::wait:
      rank->grace = here_.loop.after(leftover_poll, [=, this] { look_at_leftovers(number, attempt, watch); });
      return;
    case Found::train:
      here_.tell_leader(*(
          rank->failed = RankFailed{
              number, attempt, 0, "processes that it had started went on after its end: " + watch->names()}));
      return;
    case Found::harmless:
      log::warn("rank {} has ended, and has left processes that end with the run: {}", number,
                watch->names());
      break;
    case Found::none_left:
      break;
  }
  tell_end(number, attempt, 0, "");
}

/// Signs of the node are sent first: the leader decides when it hears of the end.
void RankKeeper::tell_end(int number, int attempt, int status, const std::string& said) {
  LocalRank* rank = here_.ranks.find(number, attempt);
  if (!rank) return;
  if (status != 0)
    for (const auto& part : messages_of(here_.signs.at_exit(number, attempt, status, said)))
      here_.tell_leader(part);
  rank->exited = RankExited{number, attempt, status};
  here_.tell_leader(*rank->exited);
}

// --- its messages ---

void RankKeeper::connected(LocalRank& rank, ChannelPtr channel) {
  rank.link = std::move(channel);
  if (drain_) rank.link->send(encode(*drain_));
  if (paused_) rank.link->send(encode(Pause{true}));
}

/// The hello says who speaks; a message cannot speak for another rank.
void RankKeeper::hear(LocalRank& rank, Channel& from, const RankToAgent& message) {
  const int number = rank.rank, attempt = rank.attempt;
  const auto keep = [&](auto& kept, auto report) {
    kept = std::move(report);
    here_.tell_leader(*kept);
  };
  const auto keep_and_take = [&](auto& kept, auto report) {
    keep(kept, std::move(report));
    from.send(encode(Taken{}));
  };
  std::visit(Overloaded{
                 [&](const RankProgress& m) { LocalRanks::take(rank, m, here_.loop.now()); },
                 [&](const RankMetrics& m) { keep_metrics(rank, m); },
                 [&](const RankWaits& m) {
                   here_.tell_leader(RankWaits{number, attempt, m.waits});
                 },
                 [&](const RankRestored& m) {
                   keep(rank.restored, RankRestored{number, attempt, m.from});
                 },
                 [&](const RankVote& m) {
                   vote({number, attempt, m.step, m.ok, m.payload, m.stall_us});
                 },
                 [&](const RankSealed&) {
                   if (Mover* mover = here_.system.mover()) mover->copy(number);
                 },
                 [&](const RankDoubt& m) {
                   keep_and_take(rank.doubt, RankDoubt{number, attempt, m.step, m.accused, m.check, m.why});
                 },
                 [&](const RankHeard& m) {
                   if (m.what == RankHeard::What::sigterm) return;  // only the agent knows
                   rank.heard_orders.insert(m.what);
                   here_.tell_leader(RankHeard{number, attempt, m.what});
                 },
                 [&](const RankFinished& m) {
                   const RankFinished finished{number, attempt, m.state};
                   if (m.state) keep_final_state(finished);
                   keep_and_take(rank.finished, finished);
                 },
                 [&](const RankFailed& m) {
                   keep_and_take(rank.failed, RankFailed{number, attempt, m.exit_code, m.why});
                 },
             },
             message);
}

/// Without it, an agent that replaces this one cannot tell the leader how the run has ended.
void RankKeeper::keep_final_state(const RankFinished& finished) const {
  try {
    launcher::keep_final_state(here_.in.scratch, finished);
  } catch (const Error& error) {
    log::warn("the final state cannot be kept: {}", error.what());
  }
}

/// A line as those of holdfast-train, through the log spool: shared storage may not answer.
void RankKeeper::keep_metrics(LocalRank& rank, const RankMetrics& said) {
  if (rank.rank != 0 || (rank.metrics && rank.metrics->second.step >= said.step)) return;
  const double now = here_.loop.unix_now();
  nlohmann::json line = {
      {"attempt", rank.attempt}, {"step", said.step}, {"unix", now}, {"tokens", said.tokens}};
  line["loss"] = std::isfinite(said.loss) ? nlohmann::json(said.loss) : nlohmann::json(nullptr);
  if (rank.metrics && now > rank.metrics->first)
    line["tokens_per_s"] =
        static_cast<double>(said.tokens - rank.metrics->second.tokens) / (now - rank.metrics->first);
  rank.metrics = {now, said};
  try {
    const auto path = spooled(here_.in.scratch, here_.in.run, here_.in.run.reported_metrics());
    files::append_all(files::open(path, O_WRONLY | O_CREAT | O_APPEND).get(), line.dump() + "\n", path);
  } catch (const Error& error) {
    log::warn("the metrics of step {} are not written down: {}", said.step, error.what());
  }
}

void RankKeeper::vote(const RankVote& vote) {
  const int attempt = vote.attempt;
  const std::int64_t step = vote.step;
  if (votes_.take(vote, here_.ranks.living(attempt))) return tell_votes(attempt, step);
  auto& timer = vote_timers_[{attempt, step}];
  if (!timer) timer = here_.loop.after(vote_patience, [=, this] { tell_votes(attempt, step); });
}

void RankKeeper::tell_votes(int attempt, std::int64_t step) {
  vote_timers_.erase({attempt, step});
  for (const auto& message : votes_.untold(attempt, step)) here_.tell_leader(message);
}

// --- orders of the leader ---

void RankKeeper::pass_on(const Drain& order) {
  if (drain_ != order) here_.ranks.forget_heard({RankHeard::What::save, RankHeard::What::stop});
  drain_ = order;
  here_.ranks.tell(order, here_.attempt());
  if (order.stop) ender_.stop_ranks();
}

/// Passed on even if it is no news here: ranks may have been told by the agent before this one.
void RankKeeper::pass_on(const Pause& order) {
  paused_ = order.on;
  if (!paused_) here_.ranks.forget_heard({RankHeard::What::pause});
  here_.ranks.tell(order, here_.attempt());
}

void RankKeeper::settled(const CommitOutcome& outcome) {
  votes_.settled(outcome.attempt, outcome.step);
  here_.ranks.tell(outcome, outcome.attempt);
}

void RankKeeper::dump_stacks(const DumpStacks& order) {
  const auto tell = [this, order](const std::string& text) {
    here_.tell_leader(Stacks{order.attempt, order.rank, text});
  };
  const LocalRank* rank = here_.ranks.find(order.rank, order.attempt);
  if (!rank || rank->pid <= 0 || rank->ended) return tell("the rank does not live on " + here_.node());
  const auto log = rank_log(here_.in.run, order.attempt, order.rank);
  dumps_[order.rank] =
      here_.system.stacks(rank->pid, spooled_path(here_.in.scratch, here_.in.run, log), tell);
}

/// Votes first: the end of a rank ends the attempt.
void RankKeeper::tell_all() {
  for (const auto& message : votes_.all()) here_.tell_leader(message);
  for (const auto& message : here_.ranks.state_messages()) here_.tell_leader(message);
}

}  // namespace holdfast::launcher
