// start_all() starts one step for the nodes of each number of GPUs. When an srun ends and the run is not
// over, ended() starts the shared step again in two halves (split_later()) or the node's own step after a
// pause (start_later()), but nothing for a node whose agent has answered since. When all agents of a shared
// step have answered a probe, or have had patience_s to do so, release_started() kills its srun. renew()
// kills the own step of a node that wants a new one, whose end then starts it.
//
// A node has at most one srun of its own. `pid` is 0 where none runs, and `released` says that an agent may
// live without an srun: then only probes show whether it does, and terminate() needs SLURM to reach it. After
// stop() no step of agents is started. As long as no agent has ever answered, a step that ends starts a trial
// step, from whose error stream SLURM's reason is read. Everything that may block runs in one of three
// Workers.
#include "launcher/job/agent_steps.hpp"

#include <signal.h>

#include <algorithm>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/agent/signs/signs.hpp"
#include "slurm/batch_script.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis first_pause{500};  // before an agent step is started again
constexpr Millis longest_pause{600000}, longest_pause_at_first{15000};  // while no agent has answered
constexpr Millis trial_limit{30000};                                    // of a trial step

/// Of a text; "" when there is none.
std::string last_line_of(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

AgentSteps::AgentSteps(control::RealLoop& loop, slurm::Cluster& cluster, Setup setup, Hooks hooks)
    : cluster_(cluster), setup_(std::move(setup)), hooks_(std::move(hooks)), loop_(loop), children_(loop) {
  for (const auto& node : setup_.nodes) steps_[node].pause = first_pause;
}

void AgentSteps::start_all() {
  std::map<int, std::vector<std::string>> alike;
  for (const auto& [node, step] : steps_) alike[gpus_on(node)].push_back(node);
  for (const auto& [gpus, nodes] : alike) start(nodes);
}

void AgentSteps::probed(const std::string& node, StepWatch::Probe what) {
  Step& step = steps_.at(node);
  step.watch.probed(what, steady_seconds());
  if (what != StepWatch::Probe::answers) {
    if (stopped_ && none_is_left()) hooks_.none_left();
    return;
  }
  step.pause = first_pause;
  heard_ = true;
  refused_since_.reset();
  release_started();
}

bool AgentSteps::misses_agents() const {
  return std::ranges::any_of(steps_,
                             [this](const auto& step) { return wants_new_step(step.first, step.second); });
}

void AgentSteps::renew(const std::function<bool(const std::string& node)>& spared) {
  for (auto& [node, step] : steps_) {
    const bool in_step = step.pid > 0 || shares_step(node);
    if (wants_new_step(node, step) && !(in_step && spared(node))) renew(node, step);
  }
}

void AgentSteps::stop() {
  stopped_ = true;
  starts_ = false;
  for (auto& [node, step] : steps_) step.again.reset();
  for (auto& [first, step] : shared_steps_) step.again.reset();
  if (none_is_left()) hooks_.none_left();
}

void AgentSteps::terminate() {
  // Where no SLURM ends it soon after, an agent would take SIGTERM for the order to save.
  const int signal = cluster_.ends_processes() ? SIGTERM : SIGKILL;
  for (const auto& [node, step] : steps_)
    if (step.pid > 0) ::kill(step.pid, signal);
  bool released = false;
  for (const auto& [first, step] : shared_steps_) {
    if (step.pid > 0) ::kill(step.pid, SIGTERM);
    released = released || step.released;
  }
  if (!released) return;
  signals_.run([&cluster = cluster_, job = setup_.job] {
    try {
      cluster.signal_steps(job, slurm::agent_step, SIGTERM);
    } catch (const Error& error) {
      log::warn("agents may stay: {}", error.what());
    }
  });
}

/// A step that nodes share may need long for some of them: a Prolog, a node that does not answer.
bool AgentSteps::wants_new_step(const std::string& node, const Step& step) const {
  const bool may_still_start = shares_step(node) && !step.watch.heard_since_start() &&
                               steady_seconds() - step.watch.started_at() < setup_.patience_s;
  return !may_still_start && step.watch.wants_new_step(steady_seconds());
}

bool AgentSteps::shares_step(const std::string& node) const {
  return std::any_of(shared_steps_.begin(), shared_steps_.end(), [&](const auto& shared) {
    const auto& nodes = shared.second.nodes;
    return shared.second.pid > 0 && std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  });
}

/// A node that was started anew registers without the step. SLURM tells srun, which then ends the step on
/// every node, `--no-kill` or not (seen: 22.05); without an srun nobody does.
void AgentSteps::release_started() {
  for (auto& [first, shared] : shared_steps_) {
    if (shared.pid == 0 || shared.released) continue;
    const bool started = std::ranges::all_of(shared.nodes, [this](const std::string& node) {
      const StepWatch& watch = steps_.at(node).watch;
      return watch.heard_since_start() || steady_seconds() - watch.started_at() >= setup_.patience_s;
    });
    if (!started) continue;
    shared.released = true;
    for (const auto& node : shared.nodes) steps_.at(node).released = true;
    // With its child, which ends the step when srun alone is killed. It may be so young that it leads no
    // group.
    if (::kill(-shared.pid, SIGKILL) != 0) ::kill(shared.pid, SIGKILL);
  }
}

/// The old srun may wait for ever for a node that was lost.
void AgentSteps::renew(const std::string& node, Step& step) {
  if (!starts_) return;
  if (step.watch.came_back()) {
    log::info("{} is back", node);
    step.pause = first_pause;
  }
  step.watch.started(steady_seconds());  // even if it fails: not again at once
  if (step.pid > 0) {
    ::kill(step.pid, SIGKILL);  // its end starts the next one
  } else if (!step.again || step.pause == first_pause) {
    step.again.reset();
    start({node});
  }
}

int AgentSteps::gpus_on(const std::string& node) const {
  const auto here = setup_.gpus.find(node);
  return here == setup_.gpus.end() ? 0 : here->second;
}

slurm::StepRequest AgentSteps::request(const std::vector<std::string>& nodes) const {
  slurm::StepRequest request;
  request.job = setup_.job;
  request.nodes = nodes;
  request.gpus = gpus_on(nodes.front());
  return request;
}

void AgentSteps::start(const std::vector<std::string>& nodes) {
  slurm::StepRequest step = request(nodes);
  step.command = slurm::step_from_place({this_program().string(), "agent", setup_.run.path.string()});
  step.output = agent_log(setup_.run, nodes.size() == 1 ? nodes.front() : std::string(slurm::node_in_path));
  setup_.into_image(step);
  for (const auto& node : nodes) {
    steps_[node].watch.started(steady_seconds());
    steps_[node].released = false;
  }
  if (nodes.size() > 1) {
    shared_steps_[nodes.front()].nodes = nodes;
    shared_steps_[nodes.front()].released = false;
  }
  const auto failed = [this, nodes](const Error& why) {
    log::warn("the agent step on {} cannot be started: {}", slurm::compress(nodes), why.what());
    ended(nodes, static_cast<int>(Exit::runtime));
  };
  try {
    pid_of(nodes) = children_.start(cluster_.step_command(step),
                                    {[this, nodes](int status) { ended(nodes, status); }, failed});
  } catch (const Error& error) {
    failed(error);
  }
}

/// Of the step on these nodes.
pid_t& AgentSteps::pid_of(const std::vector<std::string>& nodes) {
  return nodes.size() == 1 ? steps_[nodes.front()].pid : shared_steps_[nodes.front()].pid;
}

/// The exit code of srun means little; the event log tells whether the run is over.
void AgentSteps::ended(const std::vector<std::string>& nodes, int status) {
  pid_of(nodes) = 0;
  if (stopped_) {
    if (none_is_left()) hooks_.none_left();
    return;
  }
  if (nodes.size() > 1 && shared_steps_[nodes.front()].released) return;
  hooks_.unless_over([this, nodes, status] {
    if (!starts_) return;
    if (!heard_) try_step();
    if (nodes.size() == 1)
      start_later(nodes.front(), status);
    else
      split_later(nodes, status);
  });
}

void AgentSteps::split_later(const std::vector<std::string>& nodes, int status) {
  log::warn("the step of agents on {} ended with {}; starting it again in halves", slurm::compress(nodes),
            status);
  shared_steps_[nodes.front()].again = loop_.after(first_pause, [this, nodes, ended = steady_seconds()] {
    const auto keep = std::move(shared_steps_[nodes.front()].again);
    if (!starts_) return;
    std::vector<std::string> missing;
    for (const auto& node : nodes)
      if (const Step& now = steps_[node];
          now.pid == 0 && !now.again && !now.watch.reached_within(steady_seconds() - ended, steady_seconds()))
        missing.push_back(node);
    const auto middle = missing.begin() + std::ssize(missing) / 2;
    for (const auto& half : {std::vector(missing.begin(), middle), std::vector(middle, missing.end())})
      if (!half.empty()) start(half);
  });
}

void AgentSteps::start_later(const std::string& node, int status) {
  Step& step = steps_[node];
  if (step.pid > 0 || step.again) return;
  logs_.ask([log = agent_log(setup_.run, node)] { return last_line_of(log_tail(log)); },
            [this, node, status, pause = step.pause](const std::string& said) {
              const bool as_before = std::exchange(steps_[node].said, said) == said;
              log::warn("the agent step on {} ended with {}; starting it again in {} s{}", node, status,
                        1e-3 * static_cast<double>(pause.count()),
                        said.empty() || as_before ? "" : "; its log ends with: " + said);
            });
  step.again = loop_.after(step.pause, [this, node, ended = steady_seconds()] {
    Step& now = steps_[node];
    const auto keep = std::move(now.again);
    // The agent of an earlier step may have answered meanwhile.
    if (starts_ && !now.watch.reached_within(steady_seconds() - ended, steady_seconds())) start({node});
  });
  step.pause = std::min(step.pause * 2, heard_ ? longest_pause : longest_pause_at_first);
}

/// Of an agent without an srun only a probe tells.
bool AgentSteps::none_is_left() const {
  return std::ranges::none_of(steps_,
                              [](const auto& step) {
                                return step.second.pid > 0 ||
                                       (step.second.released && step.second.watch.answers());
                              }) &&
         std::ranges::none_of(shared_steps_, [](const auto& step) { return step.second.pid > 0; });
}

/// The steps of agents write to the agents' logs on the nodes; what srun says of a step that never was, only
/// its own error stream has.
void AgentSteps::try_step() {
  if (trials_.busy_for()) return;
  slurm::StepRequest step = request({setup_.trial_node});
  step.name = "trial";
  step.command = {"true"};
  setup_.into_image(step);
  trials_.ask(
      [command = cluster_.step_command(step)]() -> Finished {
        try {
          return holdfast::run(command, trial_limit);
        } catch (const Error& error) {
          return {static_cast<int>(Exit::runtime), false, "", error.what()};
        }
      },
      [this](const Finished& trial) { tried(trial); });
}

void AgentSteps::tried(const Finished& trial) {
  if (stopped_ || heard_) return;
  if (trial.timed_out || trial.status == 0) return refused_since_.reset();
  const std::string words = last_line_of(trial.err);
  const std::string why = words.empty() ? "it ended with " + std::to_string(trial.status) : words;
  log::error("SLURM refuses a trial step on {}: {}", setup_.trial_node, why);
  if (!refused_since_) refused_since_ = steady_seconds();
  if (steady_seconds() - *refused_since_ >= setup_.refusal_s) hooks_.refused(why);
}

}  // namespace holdfast::launcher
