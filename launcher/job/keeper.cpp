#include "launcher/job/keeper.hpp"

#include <signal.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/agent/children.hpp"
#include "launcher/agent/programs.hpp"
#include "launcher/job/run_owner.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/roster.hpp"
#include "slurm/job_env.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/load.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr Millis first_pause{500}, longest_pause{15000};  // before an agent step is started again
constexpr Millis farewell{10000};                         // for the other steps, once the run is over
constexpr Millis probe_period{5000}, probe_limit{3000};   // is every agent there?
constexpr int probes_missed_at_most =
    3;  // then its srun is waiting for a node that has gone: a new one may find it back
constexpr std::chrono::seconds cut_off_limit{300};
constexpr Millis drain_poll{200}, same_signal{2000};
constexpr int port_base = 20000, port_span = 20000;

/// What SLURM says now; what it said when the job started, when it does not answer (the variables may be
/// stale, but an agent that cannot be started is a node that is not there).
struct Allocation {
  std::vector<std::string> nodes;
  std::string batch_host;
};
Allocation allocation(slurm::Cluster& cluster, const slurm::JobEnv& env) {
  try {
    if (const auto job = cluster.job(env.job); job && !job->nodes.empty())
      return {job->nodes, job->batch_host};
  } catch (const Error& error) {
    log::warn("{}; using the node list of the job's start", error.what());
  }
  return {env.nodes, env.nodes.empty() ? std::string() : env.nodes.front()};
}

Roster make_roster(const Plan& plan, slurm::Cluster& cluster, const slurm::JobEnv& env, int port,
                   std::map<std::string, slurm::Node>& facts) {
  std::vector<std::string> names;
  for (const auto& node : plan.nodes) names.push_back(node.name);
  try {
    for (auto& node : cluster.nodes(names)) facts[node.name] = node;
  } catch (const Error& error) {
    log::warn("{}; node names serve as addresses", error.what());
  }
  Roster roster;
  roster.job = std::to_string(env.job) + "." + std::to_string(env.restarts);
  roster.ranks_per_node = plan.ranks_per_node;
  roster.candidates = plan.leaders;
  roster.first_placement.resize(static_cast<std::size_t>(plan.active));
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const auto& node = plan.nodes[i];
    const auto known = facts.find(node.name);
    roster.nodes.push_back(
        {node.name, known == facts.end() ? node.name : known->second.address, port, node.unit});
    if (node.slot >= 0) roster.first_placement[static_cast<std::size_t>(node.slot)] = static_cast<int>(i);
    if (node.batch_host) roster.batch_host = static_cast<int>(i);
  }
  return roster;
}

void write_plan(const RunDir& run, const Plan& plan) {
  json hypothetical = nullptr;
  if (files::fs::exists(run.plan())) {
    const json before = json::parse(files::read_text(run.plan()), nullptr, false);
    if (before.is_object())
      hypothetical = before.contains("hypothetical_plan") ? before["hypothetical_plan"] : before;
  }
  files::replace_atomically(
      run.plan(),
      json{{"schema_version", 1}, {"plan", to_json(plan)}, {"hypothetical_plan", hypothetical}}.dump(1) +
          "\n");
}

class Keeper {
 public:
  Keeper(const RunDir& run, slurm::Cluster& cluster, const slurm::JobEnv& env, const Roster& roster,
         const std::map<std::string, slurm::Node>& facts, int drain_s)
      : run_(run),
        cluster_(cluster),
        env_(env),
        job_(roster.job),
        facts_(facts),
        secret_(control::read_secret(run.secret())),
        children_(loop_),
        drain_s_(drain_s) {
    for (const auto& node : roster.nodes) steps_[node.name].address = {node.address, node.port};
  }

  int run() {
    const auto signals =
        loop_.on_signals({SIGTERM, SIGINT, SIGUSR1}, [this](int signal) { signalled(signal); });
    for (auto& [node, step] : steps_) start(node);
    const auto probes = loop_.every(probe_period, [this] { probe(); });
    loop_.run();
    return *code_;
  }

 private:
  struct Step {
    control::TcpAddress address;
    pid_t pid = 0;
    Millis pause = first_pause;
    control::Loop::Handle again;
    control::ChannelPtr line;
    int missed = 0;
    Clock::time_point heard;  ///< when its agent last answered
  };

  /// SIGUSR1: the time limit is near. SIGTERM: the job is cancelled, requeued or preempted. Either way the
  /// run has a moment to bring its state to the shared level; its verdict is the end.
  void signalled(int signal) {
    if (code_) return;
    const auto now = Clock::now();
    const bool ends = signal != SIGUSR1;
    // SLURM signals the whole job: this process, and the script that passes it on.
    if (ends && ending_ && now - *ending_ > same_signal) {
      log::info("signal {} again: ending the agents", signal);
      for (const auto& [node, step] : steps_)
        if (step.pid > 0) ::kill(step.pid, SIGTERM);
      return leave(128 + signal);
    }
    if (ends && !ending_) {
      ending_ = now;
      drain_limit_ = loop_.after(std::chrono::seconds(drain_s_) + same_signal, [this, signal] {
        log::warn("the run has not ended within {} s", drain_s_);
        leave(128 + signal);
      });
    }
    if (drain_) return;
    log::warn("signal {}: a last checkpoint, then {}", signal,
              ends ? "the end" : "back into the queue: the time limit is near");
    drain_ = control::Drain{true, ends ? "SIGTERM" : "SIGUSR1: the time limit is near"};
    drain_watch_ = loop_.every(drain_poll, [this] { look_for_verdict(); });
    probe();
  }

  bool look_for_verdict() {
    const RunState state = fold(run_);
    if (!state.verdict || state.job != job_) return false;  // not the verdict of an earlier job
    log::info("the run is over: {} {}", state.verdict->status, state.verdict->why);
    leave(state.verdict->exit_code);
    return true;
  }

  /// srun may wait for ever for a node that was lost, and the node may come back: an agent that has not
  /// answered for some time gets a new srun.
  void probe() {
    if (code_) return;
    if (cut_off()) return leave(static_cast<int>(Exit::transient));
    for (auto& [node, step] : steps_) {
      if (step.missed >= probes_missed_at_most) {
        step.missed = 0;
        if (step.pid > 0)
          ::kill(step.pid, SIGKILL);  // its end starts the next one
        else if (!step.again)
          start(node);
      }
      ++step.missed;
      step.line = control::dial(loop_, step.address, secret_, probe_limit,
                                {[this, &step] {
                                   step.missed = 0, step.pause = first_pause, step.heard = Clock::now();
                                   if (drain_) ask_for_drain(*step.line);
                                   step.line->close();
                                 },
                                 nullptr, nullptr});
    }
  }

  /// Whichever agent hears it tells the leader, and the next leader too.
  void ask_for_drain(control::Channel& line) const {
    control::Hello hello;
    hello.role = control::Hello::Role::keeper;
    line.send(control::encode(hello));
    line.send(control::encode(*drain_));
  }

  /// With fewer than half of the agents nobody may lead, and nothing goes on. After a while the job gives its
  /// nodes back and asks for others.
  bool cut_off() {
    const auto reached = [](const Step& step) { return Clock::now() - step.heard < 2 * probe_period; };
    if (std::all_of(steps_.begin(), steps_.end(), [&](const auto& s) { return reached(s.second); })) {
      enough_since_ = Clock::now();
      return false;
    }
    const auto lost = fold(run_).lost;
    int voters = 0, here = 0;
    for (const auto& [node, step] : steps_)
      if (!lost.contains(node)) ++voters, here += reached(step);
    if (2 * here >= voters) enough_since_ = Clock::now();
    if (Clock::now() - enough_since_ < cut_off_limit) return false;
    log::error("only {} of {} agents have answered for {} s: back into the queue", here, voters,
               cut_off_limit.count());
    for (const auto& [node, step] : steps_)
      if (step.pid > 0) ::kill(step.pid, SIGTERM);
    return true;
  }

  void start(const std::string& node) {
    const auto known = facts_.find(node);
    slurm::StepRequest request;
    request.job = env_.job, request.node = node;
    request.command = {this_program().string(), "agent", run_.path.string(), "--node", node};
    request.output = run_.logs() / ("agent-" + node + ".log");
    if (known != facts_.end()) request.cpus = known->second.cpus, request.gpus = known->second.gpus;
    try {
      steps_[node].pid =
          children_.start(cluster_.step_command(request), [this, node](int status) { ended(node, status); });
    } catch (const Error& error) {
      log::warn("the agent step on {} cannot be started: {}", node, error.what());
      ended(node, static_cast<int>(Exit::runtime));
    }
  }

  /// A step's end says little (srun's codes mislead); the log says whether the run is over.
  void ended(const std::string& node, int status) {
    Step& step = steps_[node];
    step.pid = 0;
    if (!code_) look_for_verdict();
    if (code_) {
      if (std::all_of(steps_.begin(), steps_.end(), [](const auto& s) { return s.second.pid == 0; }))
        loop_.stop();
      return;
    }
    if (ending_) return;  // SLURM ends the job and starts nothing in it any more
    log::warn("the agent step on {} ended with {}; starting it again in {} ms", node, status,
              step.pause.count());
    step.missed = 1;
    step.again = loop_.after(step.pause, [this, node] {
      Step& now = steps_[node];
      const auto keep = std::move(now.again);
      if (now.missed > 0) start(node);  // else the agent of an earlier step has answered meanwhile
    });
    step.pause = std::min(step.pause * 2, longest_pause);
  }

  void leave(int code) {
    if (code_) return;
    code_ = code;
    drain_watch_.reset(), drain_limit_.reset();
    for (auto& [node, step] : steps_) step.again.reset();
    limit_ = loop_.after(farewell, [this] { loop_.stop(); });  // steps of lost nodes never end
    if (std::all_of(steps_.begin(), steps_.end(), [](const auto& s) { return s.second.pid == 0; }))
      loop_.stop();
  }

  RunDir run_;
  slurm::Cluster& cluster_;
  slurm::JobEnv env_;
  std::string job_;
  std::map<std::string, slurm::Node> facts_;
  control::Key secret_;
  control::Loop loop_;
  Children children_;
  std::map<std::string, Step> steps_;
  std::optional<int> code_;
  std::optional<control::Drain> drain_;      ///< asked for, of every agent that answers
  std::optional<Clock::time_point> ending_;  ///< SLURM has said that it ends the job
  int drain_s_;
  control::Loop::Handle limit_, drain_watch_, drain_limit_;
  Clock::time_point enough_since_ = Clock::now();
};

}  // namespace

int keep(const RunDir& run, slurm::Cluster& cluster) {
  const auto env = slurm::job_env();
  confirm_owner(run, env.job, cluster);
  const auto config = config::load(run.config()).config;
  const auto model = config::load_model(run.model().string());
  const auto facts = config::load_cluster(run.cluster().string());
  const auto here = allocation(cluster, env);
  const Plan plan = make_plan(config, model, facts, here.nodes, here.batch_host);
  for (const auto& warning : plan.warnings) log::warn("{}", warning);
  write_plan(run, plan);
  std::map<std::string, slurm::Node> nodes;
  const int port =
      config.supervise.port > 0 ? config.supervise.port : port_base + static_cast<int>(env.job % port_span);
  const Roster roster = make_roster(plan, cluster, env, port, nodes);
  files::replace_atomically(run.nodes(), to_json_text(roster));
  log::info("job {}: {} active nodes, {} spares, {} ranks; agents on port {}", env.job, plan.active,
            plan.spares, plan.world(), port);
  return Keeper(run, cluster, env, roster, nodes, config.checkpoint.drain_s).run();
}

}  // namespace holdfast::launcher
