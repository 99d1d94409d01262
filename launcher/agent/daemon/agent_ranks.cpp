// The agent and the ranks of its node: their start, their messages and their end.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/agent/daemon/agent.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "slurm/environment.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/rank_env.hpp"
#include "src/config/partner_nodes.hpp"
#include "src/config/snapshot_buffers.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis log_limit{200};                   // to read the end of its log
constexpr Millis reap_poll{10}, reap_limit{2000};  // until the guardian has recorded how a rank ended
constexpr int cannot_start = 127;                  // as in shells
constexpr Millis slurm_first{1000};                // SLURM signals one node after the other
constexpr Millis leftover_poll{static_cast<int>(1e3 * LeftoverWatch::look_every_s)};
constexpr Millis slurm_answer{2000}, slurm_poll{50};
}  // namespace

void Agent::rank_is_up(int number, int attempt) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->started || rank->ended) return;
  rank->started = true;
  tell_leader(RankStarted{number, attempt, rank->pid});
  if ((drain_ && drain_->stop) || asked_at_) ask_ranks_to_end();
}

/// No process became its program.
void Agent::rank_has_no_program(int number, int attempt, const Error& why) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->failed) return;
  rank->pid = 0;
  tell_leader(*(rank->failed = RankFailed{number, attempt, cannot_start, why.what()}));
}

void Agent::rank_is_gone(int number, int attempt, int status) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->ended) return;
  rank->ended = true;
  if (rank->asked) ask_its_children(*rank);
  if (status == 0)
    return look_at_leftovers(
        number, attempt,
        std::make_shared<LeftoverWatch>(system_.cpu_seconds_of(rank->pid), loop_.steady_seconds()));
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

/// The rank has ended with 0. What it has started may go on, and may be what trains. The end of a rank that
/// reports, or that was told to end, says enough.
void Agent::look_at_leftovers(int number, int attempt, const std::shared_ptr<LeftoverWatch>& watch) {
  using Found = LeftoverWatch::Verdict;
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank) return;
  // A process that the rank has started may be what reports, and go on.
  const bool reported_itself =
      rank->reports() && (!rank->speaker || rank->speaker->pid <= 0 || rank->speaker->pid == rank->pid);
  const bool says_enough =
      promises_.one_process || rank->finished || reported_itself || rank->asked || asked_at_;
  if (says_enough) return tell_end(number, attempt, 0, "");
  std::vector<Leftover> left;
  try {
    left = system_.processes_of_rank(number, attempt);
  } catch (const Error& error) {
    log::warn("it is not known what rank {} has left behind: {}", number, error.what());
  }
  switch (watch->judge(std::move(left), loop_.steady_seconds())) {
    case Found::wait:
      rank->grace = loop_.after(leftover_poll, [=, this] { look_at_leftovers(number, attempt, watch); });
      return;
    case Found::train:
      tell_leader(*(
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
void Agent::tell_end(int number, int attempt, int status, const std::string& said) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank) return;
  if (status != 0)
    for (const auto& part : messages_of(signs_->at_exit(number, attempt, status, said))) tell_leader(part);
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
  rank.finished = record.finished;
  system_.watch(record.pid, [this, number = record.rank, attempt = record.attempt] {
    await_end(number, attempt, loop_.now() + reap_limit);
  });
}

/// The rank was a child of the guardian, which records its status.
void Agent::await_end(int number, int attempt, Clock::time_point limit) {
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank || rank->ended) return;
  for (const auto& record : rank_records(scratch_))
    if (record.rank == number && record.pid == rank->pid && record.status)
      return rank_is_gone(number, attempt, *record.status);
  if (loop_.now() >= limit) return rank_is_gone(number, attempt, -1);
  rank->grace = loop_.after(reap_poll, [this, number, attempt, limit] { await_end(number, attempt, limit); });
}

/// Programs that do not report are told to end by SIGTERM, once: a second one would abort many a save. SLURM
/// may signal them at the same time, so it gets a moment to be first.
void Agent::ask_ranks_to_end() {
  if (promises_.always_reports()) return;
  if (!asked_at_) asked_at_ = loop_.now();
  ask_timer_ = loop_.after(slurm_first, [this] { signal_ranks(); });
}

/// That SLURM has signalled this agent does not mean that it has signalled the ranks: it knows no process
/// whose name it cannot read (ProctrackType=proctrack/linuxproc), or that has left its group
/// (proctrack/pgid).
void Agent::ask_whom_slurm_signals() {
  if (std::exchange(slurm_asked_, true)) return;
  const auto job = std::stoll(roster_.job);  // "JOB.RESTARTS"
  slurm_asker_.ask(
      [slurm = slurm_, job, node = node_]() -> std::optional<std::set<int>> {
        try {
          return slurm->processes_here(job, node, slurm_answer);
        } catch (const std::exception& error) {
          log::warn(
              "it is not known to which processes SLURM has sent SIGTERM; this agent sends it to ranks with "
              "a "
              "blank in their names alone, which SLURM may overlook: {}",
              error.what());
          return std::nullopt;
        }
      },
      [this](std::optional<std::set<int>> pids) {
        slurm_knows_ = std::move(pids);
        slurm_answered_ = true;
      });
}

void Agent::signal_ranks() {
  const auto now = loop_.now();
  if (slurm_signals_all() && !slurm_answered_ && now < *asked_at_ + slurm_first + 2 * slurm_answer) {
    ask_timer_ = loop_.after(slurm_poll, [this] { signal_ranks(); });
    return;
  }
  bool again = false;
  for (auto& [number, rank] : ranks_) {
    if (rank.attempt != leadership_.attempt() || !rank.started || rank.asked || rank.linked()) continue;
    if (rank.ended) {
      if (!rank.link) ask_its_children(rank);
      rank.asked = true;
    } else if (rank.link && rank.heard && now < *rank.heard + 2 * slurm_first) {
      again = true;  // it has just lost its connection, and will make another one
    } else {
      send_sigterm(rank);
    }
  }
  if (again) ask_timer_ = loop_.after(slurm_first, [this] { signal_ranks(); });
}

/// Once, unless SLURM has sent it.
void Agent::send_sigterm(LocalRank& rank) {
  rank.asked = true;
  const bool by_slurm = slurm_has_signalled(rank.pid);
  if (!by_slurm && !system_.signal(rank.pid, SIGTERM)) return;
  if (by_slurm)
    log::info("rank {}, process {}, is one of those to which SLURM has sent SIGTERM", rank.rank, rank.pid);
  else
    log::info("SIGTERM was sent to rank {}, process {}", rank.rank, rank.pid);
  rank.heard_orders.insert(RankHeard::What::sigterm);
  tell_leader(RankHeard{rank.rank, rank.attempt, RankHeard::What::sigterm});
}

/// The children of a rank's script do not get the signal that the script got, and may have the state.
void Agent::ask_its_children(const LocalRank& rank) const {
  try {
    for (const auto& p : system_.processes(false))
      if (p.rank == rank.rank && p.attempt == rank.attempt && !slurm_has_signalled(p.pid))
        system_.signal(p.pid, SIGTERM);
  } catch (const Error& error) {
    log::warn("the children of rank {} do not hear that it was told to end: {}", rank.rank, error.what());
  }
}

void Agent::forget_drain() { drain_.reset(), asked_at_.reset(), ask_timer_.reset(); }

void Agent::from_rank(const std::shared_ptr<Peer>& peer, const RankToAgent& message) {
  const int number = peer->hello.rank, attempt = peer->hello.attempt;
  LocalRank* rank = ranks_.find(number, attempt);
  if (!rank) return;
  const auto taken = [&] { peer->channel->send(encode(Taken{})); };
  if (peer->mute) {  // a client of an older release waits for the answer
    if (std::holds_alternative<RankFinished>(message) || std::holds_alternative<RankFailed>(message) ||
        std::holds_alternative<RankDoubt>(message))
      taken();
    return;
  }
  // The hello says who speaks; a message cannot speak for another rank.
  std::visit(Overloaded{
                 [&](const RankProgress& m) { LocalRanks::take(*rank, m, loop_.now()); },
                 [&](const RankMetrics& m) { keep_metrics(*rank, m); },
                 [&](const RankWaits& m) {
                   tell_leader(RankWaits{number, attempt, m.waits});
                 },
                 [&](const RankRestored& m) {
                   rank->restored = RankRestored{number, attempt, m.from};
                   tell_leader(*rank->restored);
                 },
                 [&](const RankVote& m) {
                   vote({number, attempt, m.step, m.ok, m.payload, m.stall_us});
                 },
                 [&](const RankSealed&) {
                   if (Mover* mover = system_.mover()) mover->copy(number);
                 },
                 [&](const RankDoubt& m) {
                   rank->doubt = RankDoubt{number, attempt, m.step, m.accused, m.check, m.why};
                   tell_leader(*rank->doubt);
                   taken();
                 },
                 [&](const RankHeard& m) {
                   if (m.what == RankHeard::What::sigterm) return;  // only the agent knows
                   rank->heard_orders.insert(m.what);
                   tell_leader(RankHeard{number, attempt, m.what});
                 },
                 [&](const RankFinished& m) {
                   rank->finished = RankFinished{number, attempt, m.state};
                   if (m.state) keep_final_state(*rank->finished);
                   tell_leader(*rank->finished);
                   taken();
                 },
                 [&](const RankFailed& m) {
                   rank->failed = RankFailed{number, attempt, m.exit_code, m.why};
                   tell_leader(*rank->failed);
                   taken();
                 },
             },
             message);
}

/// A line as those of holdfast-train, through the log spool: shared storage may not answer.
void Agent::keep_metrics(LocalRank& rank, const RankMetrics& said) {
  if (rank.rank != 0 || (rank.metrics && rank.metrics->second.step >= said.step)) return;
  const double now = loop_.unix_now();
  nlohmann::json line = {
      {"attempt", rank.attempt}, {"step", said.step}, {"unix", now}, {"tokens", said.tokens}};
  line["loss"] = std::isfinite(said.loss) ? nlohmann::json(said.loss) : nlohmann::json(nullptr);
  if (rank.metrics && now > rank.metrics->first)
    line["tokens_per_s"] =
        static_cast<double>(said.tokens - rank.metrics->second.tokens) / (now - rank.metrics->first);
  rank.metrics = {now, said};
  try {
    const auto path = spooled(scratch_, run_, run_.reported_metrics());
    files::append_all(files::open(path, O_WRONLY | O_CREAT | O_APPEND).get(), line.dump() + "\n", path);
  } catch (const Error& error) {
    log::warn("the metrics of step {} are not written down: {}", said.step, error.what());
  }
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

Command Agent::attempt_command(std::vector<std::string> argv, const StartRanks& order) const {
  Command command;
  command.argv = std::move(argv);
  command.environment =
      attempt_environment(run_, node_, order, cluster_, config_.rank, slurm::rank_environment());
  command.new_session = true;  // it outlives this agent process, unless nobody would end it then
  if (!slurm_->ends_processes()) command.when_parent_ends = SIGKILL;
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

/// Without it, an agent that replaces this one cannot tell the leader how the run has ended.
void Agent::keep_final_state(const RankFinished& finished) const {
  try {
    launcher::keep_final_state(scratch_, finished);
  } catch (const Error& error) {
    log::warn("the final state cannot be kept: {}", error.what());
  }
}

void Agent::start_ranks(const StartRanks& order) {
  if (order.attempt != leadership_.attempt() || (starting_ && starting_->attempt == order.attempt)) return;
  starting_ = order;
  signs_->attempt_begins(order.attempt);
  begin_copies(order);
  if (promises_.speaks_mpi && pmix_attempt_ != order.attempt) start_pmix(order);
  for (int i = 0; i < order.ranks_per_node; ++i) start_rank(order.slot * order.ranks_per_node + i);
}

/// Does nothing while the rank's PMIx server is not ready.
void Agent::start_rank(int number) {
  if (!starting_) return;
  const StartRanks& order = *starting_;
  const int local_rank = number - order.slot * order.ranks_per_node;
  const auto variables = pmix_variables_.find(number);
  if (local_rank < 0 || local_rank >= order.ranks_per_node ||
      (promises_.speaks_mpi && variables == pmix_variables_.end()))
    return;
  LocalRank& rank = ranks_.at(number, order.attempt);
  if (rank.pid > 0 || rank.ended || rank.failed) return;
  RankEnv at{.rank = number,
             .world = static_cast<int>(order.nodes.size()) * order.ranks_per_node,
             .local_rank = local_rank,
             .ranks_per_node = order.ranks_per_node,
             .term = order.term,
             .attempt = order.attempt,
             .node = node_,
             .run_dir = run_.path,
             .agent_socket = scratch_.socket(),
             .key_file = scratch_.key(number),
             .heartbeat_file = scratch_.heartbeat(number),
             .master_address = order.master,
             .master_port = order.master_port,
             .from = order.from,
             .local_level = local_level_};
  give_buffers(at, order);
  Command command = attempt_command(config_.rank.command, order);
  command.block_sigterm = promises_.always_reports();  // the agent tells it to end
  command.folder = config_.rank.directory;
  for (const auto& variable : to_variables(at)) command.environment->push_back(variable);
  if (variables != pmix_variables_.end())
    for (const auto& variable : variables->second) command.environment->push_back(variable);
  try {
    files::replace_atomically(scratch_.key(number), to_hex(rank_key(secret_, {number, order.attempt})) + "\n",
                              files::for_owner);
    command.output = spooled(scratch_, run_, rank_log(run_, order.attempt, number));
    const ChildHooks hooks{
        [this, number, attempt = order.attempt](int status) { rank_is_gone(number, attempt, status); },
        [this, number, attempt = order.attempt](const Error& why) {
          rank_has_no_program(number, attempt, why);
        },
        [this, number, attempt = order.attempt] { rank_is_up(number, attempt); }};
    const auto warm = warm_ ? warm_->start(command, hooks.ended) : std::nullopt;
    rank.pid = warm ? *warm : system_.start(command, hooks);
    keep_record({number, order.attempt, rank.pid, {}});
    if (warm) rank_is_up(number, order.attempt);
  } catch (const Error& error) {
    rank_has_no_program(number, order.attempt, error);
  }
}

void Agent::warm_ranks() {
  if (config_.rank.warm.empty()) return;
  StartRanks order;
  order.attempt = waiting_attempt;
  order.ranks_per_node = roster_.ranks_per_node;
  try {
    Command command = attempt_command({}, order);
    command.output = spooled(scratch_, run_, run_.logs() / ("warm-" + node_ + ".log"));
    warm_ =
        std::make_unique<WarmRanks>(loop_, system_, config_.rank, order.ranks_per_node, std::move(command));
  } catch (const Error& error) {
    log::warn("ranks start without waiting interpreters (rank.warm): {}", error.what());
  }
}

// --- snapshot buffers ---

void Agent::give_buffers(RankEnv& rank, const StartRanks& order) const {
  const Mover* mover = system_.mover();
  if (!mover) return;
  rank.buffers = mover->folder_of(rank.rank);
  rank.buffers_copied = copies_buffers(order);
  rank.buffers_limit =
      config::program_share(mover->memory_bytes(), order.ranks_per_node, rank.buffers_copied);
}

bool Agent::copies_buffers(const StartRanks& order) const {
  return config_.checkpoint.partner != config::Partner::none && order.nodes.size() > 1 &&
         order.movers.size() == order.nodes.size();
}

void Agent::begin_copies(const StartRanks& order) {
  Mover* mover = system_.mover();
  if (!mover) return;
  Mover::Attempt attempt{order.attempt, {}, {}, order.from.sealed_step, order.from.sealed_attempt};
  for (int i = 0; i < order.ranks_per_node; ++i)
    attempt.ranks.push_back(order.slot * order.ranks_per_node + i);
  if (copies_buffers(order)) {
    std::map<std::string, int> numbers;
    std::vector<int> units, nodes;
    for (const auto& name : order.nodes) {
      nodes.push_back(roster_.node_called(name));
      const std::string unit = nodes.back() < 0 ? "" : roster_.nodes[nodes.back()].scalable_unit;
      units.push_back(numbers.try_emplace(unit, static_cast<int>(numbers.size())).first->second);
    }
    const int slot = config::partner_nodes(static_cast<int>(nodes.size()), units)[order.slot];
    attempt.partner = mover_at(nodes[slot], order.movers[slot]);
  }
  mover->begin(attempt);
  for (const int rank : attempt.ranks) mover->copy(rank);
}

Mover::Place Agent::mover_at(int node, int port) const {
  if (node < 0) return {};
  auto hosts = roster_.nodes[node].ip_addresses;
  hosts.push_back(roster_.nodes[node].address);
  return {std::move(hosts), port};
}

/// The answer is given again where the leader repeats the order, because it may not have come.
void Agent::fetch_state(const FetchState& order) {
  if (order.attempt != leadership_.attempt()) return;
  StateFetched answer{order.attempt, order.step, order.of_attempt, -1, ""};
  Mover* mover = system_.mover();
  if (!mover && !order.from.empty()) {
    answer.rank = order.from.front().rank;
    answer.why = "this node keeps no snapshot buffers";
    answer.no_room = true;
  }
  if (!mover) return tell_leader(answer);
  std::vector<Mover::Source> sources;
  for (const auto& from : order.from)
    sources.push_back({from.rank, mover_at(roster_.node_called(from.node), from.port)});
  mover->fetch(sources, order.step, order.of_attempt, [this, answer](const Mover::Fetched& what) mutable {
    answer.rank = what.rank;
    answer.why = what.why;
    answer.no_room = what.no_room;
    tell_leader(answer);
  });
}

// --- MPI ranks and their PMIx server ---

void Agent::start_pmix(const StartRanks& order) {
  pmix_variables_.clear();
  try {
    renew_scratch();
    Command command = attempt_command(
        {pmix_program, "--socket", scratch_.socket().string(), "--secret",
         settings_of(scratch_, run_).secret().string(), "--folder", scratch_.pmix(order.attempt).string(),
         "--nodes", fmt::format("{}", fmt::join(order.nodes, ",")), "--slot", std::to_string(order.slot),
         "--ranks-per-node", std::to_string(order.ranks_per_node), "--term", std::to_string(order.term),
         "--attempt", std::to_string(order.attempt)},
        order);
    command.output = spooled(scratch_, run_, attempt_logs(run_, order.attempt) / ("pmix-" + node_ + ".log"));
    command.block_sigterm = true;  // until it ignores the signal itself
    system_.start(command,
                  {[this, attempt = order.attempt](int status) {
                     pmix_is_gone(attempt, fmt::format("it ended with status {}", status));
                   },
                   [this, attempt = order.attempt](const Error& why) { pmix_is_gone(attempt, why.what()); }});
    pmix_attempt_ = order.attempt;
  } catch (const Error& error) {
    pmix_is_gone(order.attempt, error.what());
  }
}

/// Its ranks end themselves, within a second or two.
void Agent::pmix_is_gone(int attempt, const std::string& why) {
  if (pmix_attempt_ == attempt) pmix_attempt_ = 0;
  if (attempt != leadership_.attempt() || leave_timer_) return;
  std::vector<LocalRank*> not_started;
  for (int i = 0; starting_ && i < starting_->ranks_per_node; ++i) {
    LocalRank& rank = ranks_.at(starting_->slot * starting_->ranks_per_node + i, attempt);
    if (rank.pid <= 0 && !rank.failed) not_started.push_back(&rank);
  }
  if (not_started.empty() && !ranks_.any_lives()) return;
  log::error("the PMIx server of attempt {} has ended: {}", attempt, why);
  tell_leader(NodeSigns{{Sign{"pmix_ended", -1, 0, 0, why, attempt}}});
  for (LocalRank* rank : not_started)
    tell_leader(*(rank->failed = RankFailed{rank->rank, attempt, static_cast<int>(Exit::runtime),
                                            "the rank's PMIx server has ended: " + why}));
}

void Agent::tell_pmix(const Message& message) const {
  if (pmix_ && pmix_->open()) pmix_->send(encode(message));
}

void Agent::from_pmix(const PmixToAgent& message) {
  std::visit(Overloaded{
                 [&](const PmixRank& m) {
                   if (m.attempt != leadership_.attempt()) return;
                   pmix_variables_[m.rank] = m.environment;
                   start_rank(m.rank);
                 },
                 [&](const auto& m) { tell_leader(m); },
             },
             message);
}

}  // namespace holdfast::launcher
