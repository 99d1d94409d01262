#include "tests/sim/node.hpp"

#include <fmt/format.h>
#include <signal.h>

#include "launcher/agent/ranks/rank_record.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;
using launcher::RunProcess;

namespace {

constexpr int cannot_run = 127;

std::string value_of(const Command& command, std::string_view name) {
  for (const std::string_view entry : *command.environment)
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return std::string(entry.substr(name.size() + 1));
  return "";
}
int number_of(const Command& command, std::string_view name) { return std::stoi(value_of(command, name)); }

std::string option_in(const std::vector<std::string>& argv, std::string_view name) {
  const auto at = std::find(argv.begin(), argv.end(), name);
  return at == argv.end() ? "" : *std::next(at);
}

RankEnv place_of(const Command& command, Bug bug) {
  RankEnv at;
  at.rank = number_of(command, "HOLDFAST_RANK");
  at.world = number_of(command, "HOLDFAST_WORLD");
  at.ranks_per_node = number_of(command, "HOLDFAST_RANKS_PER_NODE");
  at.term = number_of(command, "HOLDFAST_TERM");
  at.attempt = number_of(command, "HOLDFAST_ATTEMPT");
  at.agent_socket = value_of(command, "HOLDFAST_AGENT_SOCKET");
  if (bug != Bug::ranks_trust_all) at.from.trusted_step = number_of(command, "HOLDFAST_TRUSTED_STEP");
  return at;
}

}  // namespace

AgentProcess::AgentProcess(World& world, int node)
    : process(std::make_shared<Process>(node)), loop(world, process) {
  process->is_agent_of = &world;
}

void AgentProcess::begin(World& world, Node& node) {
  const auto& name = world.name(node.number());
  launcher::SignPlaces signs;
  signs.shared = world.storage.run.path;
  signs.touched = world.storage.run.logs() / ("agent-" + name + ".log");
  signs.nvml.clear();
  signs.injected = node.signs();
  agent = std::make_unique<launcher::Agent>(
      loop, node, world.slurm,
      launcher::AgentInput{.run = world.storage.run,
                           .scratch = {world.storage.memory_of(node.number()), name},
                           .roster = world.roster,
                           .config = world.config,
                           .cluster = {},
                           .secret = world.secret,
                           .local_level = {},
                           .signs = signs},
      [this, &world](int) {
        left = true;
        world.agent_is_gone(*this);
        process->alive = false;
        world.network.process_died(process);
        world.agent_left();
      });
}

Node::Node(World& world, int number)
    : world_(world), number_(number), scratch_{world.storage.memory_of(number), world.name(number)} {}

std::filesystem::path Node::signs() const { return world_.storage.folder / fmt::format("signs-{}", number_); }

// --- the guardian ---

void Node::start_agent() {
  if (!powered || (agent && agent->process->alive)) return;
  if (agent) dead_.push_back(std::move(agent));
  agent = std::make_unique<AgentProcess>(world_, number_);
  const auto begin = [this] { agent->begin(world_, *this); };
  // The term of the leader that was followed here is in the node's memory: nothing is asked of shared
  // storage.
  world_.followed[number_] > 0 ? run(agent->process, begin) : begin();
}

void Node::agent_dies() {
  if (!agent || !agent->process->alive) return;
  world_.agent_is_gone(*agent);
  agent->process->alive = false;
  world_.network.process_died(agent->process);
  watched_.clear();
  for (const auto& [pid, child] : children_)
    if (child.status) guardian_waits(pid);
  world_.timeline.after(world_.random.between(0.2, 1), [this] {
    if (agent && !agent->left) start_agent();
  });
}

/// It records how a child of an earlier agent has ended.
void Node::guardian_waits(pid_t pid) {
  world_.timeline.after(world_.random.between(0, 0.02), [this, pid] {
    const auto child = children_.find(pid);
    if (child == children_.end()) return;
    launcher::keep_rank_end(scratch_, pid, *child->second.status);
    children_.erase(child);
  });
}

void Node::power_off() {
  if (!powered) return;
  powered = false;
  world_.network.power(number_, false);
  if (agent) {
    world_.agent_is_gone(*agent);
    agent->process->alive = false;
  }
  for (const auto& [pid, child] : children_) child.process->alive = false;
  children_.clear();
  watched_.clear();
  local.clear();
  std::filesystem::remove_all(scratch_.folder);
  world_.followed[number_] = 0;
}

void Node::power_on() {
  if (powered) return;
  powered = true;
  clears = true;
  starts = Starts::work;
  world_.network.power(number_, true);
  if (agent) world_.network.process_died(agent->process);
  if (!agent || !agent->left) start_agent();
}

// --- processes ---

/// In the agent, if the present one still lives then.
void Node::in_agent(double seconds, std::function<void()> what) {
  world_.timeline.after(seconds, [process = agent->process, what = std::move(what)] { run(process, what); });
}

pid_t Node::start(Command command, launcher::ChildHooks hooks) {
  const Error failure(Exit::runtime, "cannot create a process", "no memory is left");
  const bool fails_later = starts == Starts::fail && world_.random.chance(0.5);
  if (starts == Starts::fail && !fails_later) throw Error(failure);
  const pid_t pid = next_pid_++;
  const bool is_pmix = command.argv.front() == launcher::pmix_program;
  Child& child = children_[pid];
  child.facts = {pid, number_of(command, "HOLDFAST_ATTEMPT"),
                 is_pmix ? -1 : number_of(command, "HOLDFAST_RANK"), true, command.argv.front()};
  child.process = std::make_shared<Process>(number_);
  child.parent = agent->process;
  child.begins = true;
  watched_[pid] = [this, pid, hooks, failure, fails_later] {
    const Child gone = children_.at(pid);
    children_.erase(pid);
    if (fails_later && gone.status == cannot_run) return hooks.failed(failure);
    if (gone.begins && hooks.runs) hooks.runs();
    hooks.ended(*gone.status);
  };
  const double waits_s = starts == Starts::wait ? world_.random.between(0.1, 12) : 0;
  world_.timeline.after(waits_s, [this, pid, command, hooks, fails_later] {
    if (fails_later)
      ends(pid, cannot_run);
    else
      becomes_its_program(pid, command, hooks);
  });
  return pid;
}

/// Unless it was killed before.
void Node::becomes_its_program(pid_t pid, const Command& command, const launcher::ChildHooks& hooks) {
  const auto found = children_.find(pid);
  if (found == children_.end() || found->second.killed || found->second.status) return;
  Child& child = found->second;
  child.begins = false;
  const bool is_pmix = child.facts.rank < 0;
  if (hooks.runs) run(child.parent, hooks.runs);
  if (starts == Starts::hang && !is_pmix)
    world_.timeline.after(world_.random.between(0.1, 12), [this, pid] {
      if (const auto rank = children_.find(pid); rank != children_.end() && !rank->second.status)
        world_.fails_itself(rank->second.facts.attempt);
      ends(pid, 1);
    });
  else if (is_pmix && starts != Starts::hang)
    serve_pmix(child, command.argv);
  else if (!is_pmix)
    child.rank = world_.training->start(place_of(command, world_.bug), child.process);
}

/// It says soon that its ranks may be started.
void Node::serve_pmix(Child& server, const std::vector<std::string>& argv) {
  const int attempt = server.facts.attempt, per_node = std::stoi(option_in(argv, "--ranks-per-node"));
  const int first = std::stoi(option_in(argv, "--slot")) * per_node;
  const auto link =
      std::make_shared<Link>(world_.timeline, world_.network, server.process, option_in(argv, "--socket"));
  server.pmix = link;
  link->opened = [link = link.get(), attempt, first, per_node] {
    Hello hello;
    hello.role = Hello::Role::pmix;
    hello.attempt = attempt;
    link->send(hello);
    for (int rank = first; rank < first + per_node; ++rank)
      link->send(PmixRank{rank, attempt, {fmt::format("PMIX_RANK={}", rank)}});
  };
  world_.timeline.after(world_.random.between(0.02, 0.3), [weak = std::weak_ptr(link)] {
    if (const auto self = weak.lock()) self->connect();
  });
}

std::vector<RankPtr> Node::ranks() const {
  std::vector<RankPtr> out;
  for (const auto& [pid, child] : children_)
    if (child.rank && child.process->alive) out.push_back(child.rank);
  return out;
}

void Node::rank_ends(const Rank& rank, int status) {
  for (const auto& [pid, child] : children_)
    if (child.rank.get() == &rank) return ends(pid, status);
}

void Node::pmix_ends(int status) {
  for (const auto& [pid, child] : children_)
    if (child.pmix && child.process->alive) return ends(pid, status);
}

void Node::kill(pid_t pid, int status) {
  Child& child = children_.at(pid);
  if (std::exchange(child.killed, true) || !clears) return;
  world_.timeline.after(world_.random.between(0, 0.03), [this, pid, status] { ends(pid, status); });
}

void Node::let_end() {
  clears = true;
  for (const auto& [pid, child] : children_)
    if (child.killed) world_.timeline.after(0, [this, pid = pid] { ends(pid, 128 + SIGKILL); });
}

void Node::ends(pid_t pid, int status) {
  const auto found = children_.find(pid);
  if (found == children_.end() || found->second.status) return;
  Child& child = found->second;
  child.process->alive = false;
  child.status = status;
  world_.network.process_died(child.process);
  if (child.rank) world_.training->ended(*child.rank, status);
  if (child.facts.rank < 0)  // its ranks end themselves
    for (const auto& [other, one] : children_)
      if (one.facts.rank >= 0 && one.facts.attempt == child.facts.attempt)
        world_.timeline.after(world_.random.between(0.1, 2), [this, other = other] { ends(other, 1); });
  if (!child.parent->alive) guardian_waits(pid);
  call_back(pid);
}

/// Who watches it hears of its end.
void Node::call_back(pid_t pid) {
  if (!watched_.contains(pid)) return;
  in_agent(0, [this, pid] {
    const auto watched = watched_.find(pid);
    if (watched == watched_.end()) return;
    const auto ended = std::move(watched->second);
    watched_.erase(watched);
    ended();
  });
}

void Node::watch(pid_t pid, std::function<void()> ended) {
  if (!watched_.try_emplace(pid, std::move(ended)).second) return;
  const auto child = children_.find(pid);
  if (child == children_.end() || child->second.status) call_back(pid);
}

bool Node::is_guardians(pid_t pid) const {
  const auto child = children_.find(pid);
  return child != children_.end() && !child->second.parent->alive;
}

bool Node::signal(pid_t pid, int signal) {
  const auto child = children_.find(pid);
  if (child == children_.end()) return false;
  const bool is_pmix = child->second.facts.rank < 0;
  if (signal == SIGKILL)
    kill(pid, 128 + SIGKILL);
  else if (is_pmix && signal == launcher::pmix_end_signal())
    kill(pid, 0);
  return true;
}

std::vector<RunProcess> Node::processes(bool orphans) const {
  std::vector<RunProcess> out;
  for (const auto& [pid, child] : children_) {
    if (!child.process->alive) continue;
    if (!child.begins || child.parent == agent->process)
      out.push_back(child.facts);
    else if (orphans)  // whose it is cannot be seen
      out.push_back({pid, 0, -1, true, ""});
  }
  return out;
}

// --- the rest of the node ---

Loop::Handle Node::stacks(pid_t, const std::filesystem::path&, std::function<void(std::string)> done) {
  return agent->loop.after(Millis(300), [done = std::move(done)] { done("#0"); });
}

Loop::Handle Node::why_left(std::vector<RunProcess> left, std::function<void(std::string)> done) {
  return agent->loop.after(Millis(10), [done = std::move(done), many = left.size()] {
    done(fmt::format("{} processes have not ended", many));
  });
}

void Node::check(bool, std::function<void(const NodeHealth&)> then) {
  if (world_.random.chance(0.03)) return;  // it hangs
  NodeHealth health{NodeHealth::Fitness::ok, "", ""};
  if (world_.random.chance(0.05))
    health = {NodeHealth::Fitness::critical,
              "7 of 8 GPUs",
              "",
              {{"gpu.count", NodeHealth::Fitness::critical, "7 of 8 GPUs"}}};
  in_agent(world_.random.between(0.05, 0.5), [then = std::move(then), health] { then(health); });
}

}  // namespace holdfast::sim
