// How the ranks of an attempt are started; the header has the orders.
//
// start() takes the order of an attempt once. It begins the copies to the partner, starts the PMIx server
// where ranks speak MPI, and tries to start each rank. start_rank() does nothing until the variables of a
// rank are there, so it is called again when the PMIx server has told them. A rank whose program cannot be
// started, or whose PMIx server has ended, is reported as failed and never started in this attempt. An order
// of an older attempt changes nothing.
#include "launcher/agent/daemon/rank_starter.hpp"

#include <fmt/format.h>
#include <signal.h>

#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "slurm/environment.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/config/partner_nodes.hpp"
#include "src/config/snapshot_buffers.hpp"

namespace holdfast::launcher {

using namespace control;

void RankStarter::warm_up() {
  const auto& rank = here_.in.config.rank;
  if (rank.warm.empty()) return;
  StartRanks order;
  order.attempt = waiting_attempt;
  order.ranks_per_node = here_.in.roster.ranks_per_node;
  try {
    Command command = command_of_attempt({}, order);
    const RunDir& run = here_.in.run;
    command.output = spooled(here_.in.scratch, run, run.logs() / ("warm-" + here_.node() + ".log"));
    warm_ =
        std::make_unique<WarmRanks>(here_.loop, here_.system, rank, order.ranks_per_node, std::move(command));
  } catch (const Error& error) {
    log::warn("ranks start without waiting interpreters (rank.warm): {}", error.what());
  }
}

void RankStarter::adopt(const std::vector<RunProcess>& running) {
  for (const auto& p : running)
    if (p.name == pmix_program) {
      pmix_attempt_ = p.attempt;
      here_.system.watch(p.pid, [this, attempt = p.attempt] { pmix_is_gone(attempt, "it has vanished"); });
    }
}

void RankStarter::forget_older(int attempt) {
  if (!starting_ || starting_->attempt >= attempt) return;
  starting_.reset();
  pmix_variables_.clear();
  pmix_.reset();
}

void RankStarter::start_no_more() {
  over_ = true;
  if (warm_) warm_->end();
}

Command RankStarter::command_of_attempt(std::vector<std::string> argv, const StartRanks& order) const {
  const AgentInput& in = here_.in;
  Command command;
  command.argv = std::move(argv);
  command.environment =
      attempt_environment(in.run, here_.node(), order, in.cluster, in.config.rank, slurm::rank_environment());
  command.new_session = true;  // it outlives this agent process, unless nobody would end it then
  if (!here_.slurm->ends_processes()) command.when_parent_ends = SIGKILL;
  return command;
}

void RankStarter::start(const StartRanks& order) {
  if (order.attempt != here_.attempt() || (starting_ && starting_->attempt == order.attempt)) return;
  starting_ = order;
  here_.signs.attempt_begins(order.attempt);
  begin_copies(order);
  if (here_.promises.speaks_mpi && pmix_attempt_ != order.attempt) start_pmix(order);
  for (int i = 0; i < order.ranks_per_node; ++i) start_rank(order.slot * order.ranks_per_node + i);
}

/// Does nothing while the rank's PMIx server is not ready.
void RankStarter::start_rank(int number) {
  if (!starting_) return;
  const StartRanks& order = *starting_;
  const AgentInput& in = here_.in;
  const int local_rank = number - order.slot * order.ranks_per_node;
  const auto variables = pmix_variables_.find(number);
  if (local_rank < 0 || local_rank >= order.ranks_per_node ||
      (here_.promises.speaks_mpi && variables == pmix_variables_.end()))
    return;
  LocalRank& rank = here_.ranks.at(number, order.attempt);
  if (rank.pid > 0 || rank.ended || rank.failed) return;
  RankEnv at{.rank = number,
             .world = static_cast<int>(order.nodes.size()) * order.ranks_per_node,
             .local_rank = local_rank,
             .ranks_per_node = order.ranks_per_node,
             .term = order.term,
             .attempt = order.attempt,
             .node = here_.node(),
             .run_dir = in.run.path,
             .agent_socket = in.scratch.socket(),
             .key_file = in.scratch.key(number),
             .heartbeat_file = in.scratch.heartbeat(number),
             .master_address = order.master,
             .master_port = order.master_port,
             .from = order.from,
             .local_level = in.local_level};
  give_buffers(at, order);
  Command command = command_of_attempt(in.config.rank.command, order);
  command.block_sigterm = here_.promises.always_reports();  // the agent tells it to end
  command.folder = in.config.rank.directory;
  for (const auto& variable : to_variables(at)) command.environment->push_back(variable);
  if (variables != pmix_variables_.end())
    for (const auto& variable : variables->second) command.environment->push_back(variable);
  try {
    files::replace_atomically(in.scratch.key(number),
                              to_hex(rank_key(in.secret, {number, order.attempt})) + "\n", files::for_owner);
    command.output = spooled(in.scratch, in.run, rank_log(in.run, order.attempt, number));
    const ChildHooks hooks = keeper_.hooks_of(number, order.attempt);
    const auto warm = warm_ ? warm_->start(command, hooks.ended) : std::nullopt;
    keeper_.has_started(rank, warm ? *warm : here_.system.start(command, hooks));
    if (warm) hooks.runs();
  } catch (const Error& error) {
    keeper_.has_no_program(number, order.attempt, error);
  }
}

// --- snapshot buffers ---

void RankStarter::give_buffers(RankEnv& rank, const StartRanks& order) const {
  const Mover* mover = here_.system.mover();
  if (!mover) return;
  rank.buffers = mover->folder_of(rank.rank);
  rank.buffers_copied = copies_buffers(order);
  rank.buffers_limit =
      config::program_share(mover->memory_bytes(), order.ranks_per_node, rank.buffers_copied);
}

bool RankStarter::copies_buffers(const StartRanks& order) const {
  return here_.in.config.checkpoint.partner != config::Partner::none && order.nodes.size() > 1 &&
         order.movers.size() == order.nodes.size();
}

void RankStarter::begin_copies(const StartRanks& order) {
  Mover* mover = here_.system.mover();
  if (!mover) return;
  const Roster& roster = here_.in.roster;
  Mover::Attempt attempt{order.attempt, {}, {}, order.from.sealed_step, order.from.sealed_attempt};
  for (int i = 0; i < order.ranks_per_node; ++i)
    attempt.ranks.push_back(order.slot * order.ranks_per_node + i);
  if (copies_buffers(order)) {
    std::map<std::string, int> numbers;
    std::vector<int> units, nodes;
    for (const auto& name : order.nodes) {
      nodes.push_back(roster.node_called(name));
      const std::string unit = nodes.back() < 0 ? "" : roster.nodes[nodes.back()].scalable_unit;
      units.push_back(numbers.try_emplace(unit, static_cast<int>(numbers.size())).first->second);
    }
    const int slot = config::partner_nodes(static_cast<int>(nodes.size()), units)[order.slot];
    attempt.partner = mover_at(nodes[slot], order.movers[slot]);
  }
  mover->begin(attempt);
  for (const int rank : attempt.ranks) mover->copy(rank);
}

Mover::Place RankStarter::mover_at(int node, int port) const {
  if (node < 0) return {};
  const auto& known = here_.in.roster.nodes[node];
  auto hosts = known.ip_addresses;
  hosts.push_back(known.address);
  return {std::move(hosts), port};
}

/// The answer is given again where the leader repeats the order, because it may not have come.
void RankStarter::fetch(const FetchState& order) {
  if (order.attempt != here_.attempt()) return;
  StateFetched answer{order.attempt, order.step, order.of_attempt, -1, ""};
  Mover* mover = here_.system.mover();
  if (!mover && !order.from.empty()) {
    answer.rank = order.from.front().rank;
    answer.why = "this node keeps no snapshot buffers";
    answer.no_room = true;
  }
  if (!mover) return here_.tell_leader(answer);
  std::vector<Mover::Source> sources;
  for (const auto& from : order.from)
    sources.push_back({from.rank, mover_at(here_.in.roster.node_called(from.node), from.port)});
  mover->fetch(sources, order.step, order.of_attempt, [this, answer](const Mover::Fetched& what) mutable {
    answer.rank = what.rank;
    answer.why = what.why;
    answer.no_room = what.no_room;
    here_.tell_leader(answer);
  });
}

// --- MPI ranks and their PMIx server ---

void RankStarter::start_pmix(const StartRanks& order) {
  const auto& [run, scratch] = std::tie(here_.in.run, here_.in.scratch);
  const auto gone = [this, attempt = order.attempt](const std::string& why) { pmix_is_gone(attempt, why); };
  pmix_variables_.clear();
  try {
    here_.renew_scratch();
    Command command = command_of_attempt(
        {pmix_program, "--socket", scratch.socket().string(), "--secret",
         settings_of(scratch, run).secret().string(), "--folder", scratch.pmix(order.attempt).string(),
         "--nodes", fmt::format("{}", fmt::join(order.nodes, ",")), "--slot", std::to_string(order.slot),
         "--ranks-per-node", std::to_string(order.ranks_per_node), "--term", std::to_string(order.term),
         "--attempt", std::to_string(order.attempt)},
        order);
    command.output =
        spooled(scratch, run, attempt_logs(run, order.attempt) / ("pmix-" + here_.node() + ".log"));
    command.block_sigterm = true;  // until it ignores the signal itself
    here_.system.start(command, {[gone](int status) { gone(fmt::format("it ended with status {}", status)); },
                                 [gone](const Error& why) { gone(why.what()); }});
    pmix_attempt_ = order.attempt;
  } catch (const Error& error) {
    gone(error.what());
  }
}

/// Its ranks end themselves, within a second or two.
void RankStarter::pmix_is_gone(int attempt, const std::string& why) {
  if (pmix_attempt_ == attempt) pmix_attempt_ = 0;
  if (attempt != here_.attempt() || over_) return;
  std::vector<LocalRank*> not_started;
  for (int i = 0; starting_ && i < starting_->ranks_per_node; ++i) {
    LocalRank& rank = here_.ranks.at(starting_->slot * starting_->ranks_per_node + i, attempt);
    if (rank.pid <= 0 && !rank.failed) not_started.push_back(&rank);
  }
  if (not_started.empty() && !here_.ranks.any_lives()) return;
  log::error("the PMIx server of attempt {} has ended: {}", attempt, why);
  here_.tell_leader(NodeSigns{{Sign{"pmix_ended", -1, 0, 0, why, attempt}}});
  for (LocalRank* rank : not_started)
    here_.tell_leader(*(rank->failed = RankFailed{rank->rank, attempt, static_cast<int>(Exit::runtime),
                                                  "the rank's PMIx server has ended: " + why}));
}

void RankStarter::tell_pmix(const Message& message) const {
  if (pmix_ && pmix_->open()) pmix_->send(encode(message));
}

void RankStarter::hear(const PmixToAgent& message) {
  std::visit(Overloaded{
                 [&](const PmixRank& m) {
                   if (m.attempt != here_.attempt()) return;
                   pmix_variables_[m.rank] = m.environment;
                   start_rank(m.rank);
                 },
                 [&](const auto& m) { here_.tell_leader(m); },
             },
             message);
}

}  // namespace holdfast::launcher
