// The agent and the ranks of its node: their start, their messages and their end.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "launcher/agent/daemon/agent.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/agent/ranks/run_processes.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/rank_env.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis shim_grace{300};                  // between a rank's death and its shim's report
constexpr Millis log_limit{200};                   // to read the end of its log
constexpr Millis reap_poll{10}, reap_limit{2000};  // until the guardian has recorded how a rank ended
constexpr Millis slurm_first{1000};                // SLURM signals one node after the other
}  // namespace

void Agent::rank_is_up(LocalRank& rank, pid_t pid) {
  if (rank.started) return;
  rank.started = true;
  rank.pid = pid;
  tell_leader(RankStarted{rank.rank, rank.attempt, pid});
  if (drain_ && drain_->stop) ask_ranks_to_end();
  if (!rank.shim) return;
  // The shim reports the exit code; if it has died with its rank, only the pidfd shows the end.
  children_.watch(pid, [this, number = rank.rank, attempt = rank.attempt] {
    if (auto* gone = ranks_.find(number, attempt))
      gone->grace = loop_.after(shim_grace, [this, number, attempt] { rank_is_gone(number, attempt, -1); });
  });
}

void Agent::rank_is_gone(int number, int attempt, int status) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->ended) return;
  rank->ended = true;
  if (rank->asked) ask_its_children(*rank);
  if (status == 0) return tell_end(number, attempt, status, "");
  if (rank->failed) return tell_end(number, attempt, status, rank->failed->why);
  // The end of its log often tells why; a file system that does not answer must not delay the report of the
  // end.
  const auto told = std::make_shared<bool>(false);
  const auto tell = [this, number, attempt, status, told](const std::string& said) {
    if (!std::exchange(*told, true)) tell_end(number, attempt, status, said);
  };
  rank->grace = loop_.after(log_limit, [tell] { tell(""); });
  reader_.ask([log = spooled_path(scratch_, run_, rank_log(run_, attempt, number))] { return log_tail(log); },
              tell);
}

/// Signs of the node are sent first: the leader decides when it hears of the end.
void Agent::tell_end(int number, int attempt, int status, const std::string& said) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank) return;
  if (status != 0)
    for (const auto& part : messages_of(signs_->at_exit(number, status, said))) tell_leader(part);
  rank->exited = RankExited{number, attempt, status};
  tell_leader(*rank->exited);
}

/// Takes over a rank that an earlier agent process started.
void Agent::adopt_rank(const RankRecord& record) {
  log::info("rank {} of attempt {} is process {}, started by an earlier agent", record.rank, record.attempt,
            record.pid);
  LocalRank& rank = ranks_.at(record.rank, record.attempt);
  rank.started = true;
  rank.pid = record.pid;
  children_.watch(record.pid, [this, number = record.rank, attempt = record.attempt] {
    await_end(number, attempt, Deadline::in(reap_limit));
  });
}

/// The rank was a child of the guardian, which records its status.
void Agent::await_end(int number, int attempt, const Deadline& limit) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->ended) return;
  for (const auto& record : rank_records(scratch_))
    if (record.rank == number && record.pid == rank->pid && record.status)
      return rank_is_gone(number, attempt, *record.status);
  if (limit.passed()) return rank_is_gone(number, attempt, -1);
  rank->grace = loop_.after(reap_poll, [this, number, attempt, limit] { await_end(number, attempt, limit); });
}

/// Programs that do not report are told to end by SIGTERM, once: a second one would abort many a save. Where
/// SLURM signals every process of a step, it may do so at the same time, so it gets a moment to be first.
void Agent::ask_ranks_to_end() {
  if (own_trainer(config_.rank)) return;
  if (!asked_at_) asked_at_ = Clock::now();
  ask_timer_ = loop_.after(slurm_first, [this] {
    for (auto& [number, rank] : ranks_) {
      if (rank.attempt != leadership_.attempt() || !rank.started || rank.ended || rank.asked || rank.link)
        continue;
      rank.asked = true;
      if (rank.shim && rank.shim->open())
        rank.shim->send(encode(drain_.value_or(Drain{true, "SIGTERM"})));
      else if (!ranks_heard_slurm())
        ::kill(rank.pid, SIGTERM);
    }
  });
}

/// The children of a rank's script do not get the signal that the script got, and may have the state.
void Agent::ask_its_children(const LocalRank& rank) const {
  if (ranks_heard_slurm()) return;
  for (const auto& p : processes_of(run_, node_))
    if (p.rank == rank.rank && p.attempt == rank.attempt) ::kill(p.pid, SIGTERM);
}

void Agent::forget_drain() { drain_.reset(), asked_at_.reset(), ask_timer_.reset(); }

void Agent::from_rank(const std::shared_ptr<Peer>& peer, const RankToAgent& message) {
  const int number = peer->hello.rank, attempt = peer->hello.attempt;
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank) return;
  const auto taken = [&] { peer->channel->send(encode(Taken{})); };
  // The hello says who speaks; a message cannot speak for another rank.
  std::visit(Overloaded{
                 [&](const RankProgress& m) { LocalRanks::take(*rank, m, Clock::now()); },
                 [&](const RankRestored& m) {
                   rank->restored = RankRestored{number, attempt, m.from};
                   tell_leader(*rank->restored);
                 },
                 [&](const RankVote& m) {
                   vote({number, attempt, m.step, m.ok, m.payload});
                 },
                 [&](const RankDoubt& m) {
                   rank->doubt = RankDoubt{number, attempt, m.step, m.accused, m.check, m.why};
                   tell_leader(*rank->doubt);
                   taken();
                 },
                 [&](const RankFinished& m) {
                   rank->finished = RankFinished{number, attempt, m.state};
                   tell_leader(*rank->finished);
                   taken();
                 },
                 [&](const RankFailed& m) {
                   rank->failed = RankFailed{number, attempt, m.exit_code, m.why};
                   tell_leader(*rank->failed);
                   taken();
                 },
                 [&](const RankExited& m) {
                   rank_is_gone(number, attempt, m.status);
                   taken();
                 },
             },
             message);
}

void Agent::vote(const RankVote& vote) {
  const int attempt = vote.attempt;
  const std::int64_t step = vote.step;
  if (votes_.take(vote, ranks_.living(attempt))) return tell_votes(attempt, step);
  auto& timer = vote_timers_[{attempt, step}];
  if (!timer) timer = loop_.after(vote_patience, [this, attempt, step] { tell_votes(attempt, step); });
}

void Agent::tell_votes(int attempt, std::int64_t step) {
  vote_timers_.erase({attempt, step});
  for (const auto& message : votes_.untold(attempt, step)) tell_leader(message);
}

Command Agent::attempt_command(std::vector<std::string> argv, int term, int attempt, int world,
                               const std::optional<Restores>& restores) const {
  Command command;
  command.argv = std::move(argv);
  command.environment = attempt_environment(run_, node_, scratch_, term, attempt, world,
                                            roster_.ranks_per_node, cluster_, config_.rank, restores);
  command.new_session = true;  // it outlives this agent process
  return command;
}

/// Without the record, an agent that replaces this one does not know the rank, and the attempt ends.
void Agent::keep_record(const RankRecord& record) const {
  try {
    keep_rank_record(scratch_, record);
  } catch (const Error& error) {
    log::warn("the record of rank {} cannot be written: {}", record.rank, error.what());
  }
}

void Agent::start_ranks(const StartRanks& order) {
  if (order.attempt != leadership_.attempt()) return;
  for (const auto& place : order.ranks) {
    RankEnv at{place.rank,
               order.world,
               place.local_rank,
               order.ranks_per_node,
               order.term,
               order.attempt,
               node_,
               run_.path,
               scratch_.socket(),
               order.master,
               order.master_port,
               order.trusted_step,
               order.durable_steps};
    Command command = attempt_command(rank_command(config_.rank), order.term, order.attempt, order.world);
    command.block_sigterm = own_trainer(config_.rank);  // the agent tells it to end
    for (const auto& variable : to_variables(at)) command.environment->push_back(variable);
    LocalRank& rank = ranks_.at(place.rank, order.attempt);
    try {
      command.output = spooled(scratch_, run_, rank_log(run_, order.attempt, place.rank));
      const pid_t pid = children_.start(command, [this, number = place.rank, attempt = order.attempt](
                                                     int status) { rank_is_gone(number, attempt, status); });
      rank_is_up(rank, pid);
      keep_record({place.rank, order.attempt, pid, {}});
    } catch (const Error& error) {
      tell_leader(*(rank.failed =
                        RankFailed{place.rank, order.attempt, static_cast<int>(Exit::usage), error.what()}));
    }
  }
}

void Agent::start_mpirun(const StartMpirun& order) {
  if (order.attempt != leadership_.attempt()) return;
  const int world = static_cast<int>(order.slots.size()) * roster_.ranks_per_node;
  try {
    renew_scratch();
    files::replace_atomically(scratch_.hosts(order.attempt), hosts_file(order.slots, roster_.ranks_per_node));
    Command command =
        attempt_command(mpirun_arguments(scratch_, order.attempt, world, cluster_.control_interface),
                        order.term, order.attempt, world, Restores{order.trusted_step, order.durable_steps});
    command.output = spooled(scratch_, run_, attempt_logs(run_, order.attempt) / "mpirun.log");
    command.block_sigterm = true;  // on SIGTERM mpirun would kill the ranks, which have a checkpoint to write
    children_.start(command,
                    [this, attempt = order.attempt](int status) { mpirun_is_gone(attempt, status); });
    mpirun_attempt_ = order.attempt;
  } catch (const Error& error) {
    log::error("mpirun cannot be started: {}", error.what());
    tell_leader(MpirunExited{order.attempt, static_cast<int>(Exit::runtime)});
  }
}

void Agent::mpirun_is_gone(int attempt, int status) {
  if (mpirun_attempt_ == attempt) mpirun_attempt_ = 0;
  tell_leader(MpirunExited{attempt, status});
}

void Agent::run_daemon(const std::shared_ptr<Peer>& peer, const std::string& line) {
  const Hello& hello = peer->hello;
  if (hello.attempt != leadership_.attempt()) {
    peer->channel->send(encode(Exited{static_cast<int>(Exit::transient)}));
    return;
  }
  try {
    // The line comes from mpirun, which wrote it for a remote shell; it contains no settings. Not /bin/sh:
    // dash unblocks all signals, and SIGTERM would make the daemon end its ranks.
    Command command = attempt_command({"/bin/bash", "-c", line}, hello.term, hello.attempt, roster_.world());
    command.output = spooled(scratch_, run_, attempt_logs(run_, hello.attempt) / ("node-" + node_ + ".log"));
    command.block_sigterm = true;
    children_.start(command, [this, channel = peer->channel, attempt = hello.attempt](int status) {
      daemon_is_gone(attempt, status, fmt::format("it ended with status {}", status));
      channel->send(encode(Exited{status}));
    });
  } catch (const Error& error) {
    log::error("mpirun's daemon cannot be started: {}", error.what());
    daemon_is_gone(hello.attempt, static_cast<int>(Exit::runtime), error.what());
    peer->channel->send(encode(Exited{static_cast<int>(Exit::runtime)}));
  }
}

/// mpirun ends when one of its daemons fails, and does not say which. It is this node's daemon if it has
/// started no rank.
void Agent::daemon_is_gone(int attempt, int status, const std::string& why) {
  const bool started = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    return entry.second.attempt == attempt && entry.second.started;
  });
  if (status != 0 && attempt == leadership_.attempt() && !started)
    tell_leader(NodeSigns{{Sign{"daemon_failed", -1, status, 0, why}}});
}

}  // namespace holdfast::launcher
