#include "launcher/job/job_monitor.hpp"

#include <signal.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/agent/ranks/children.hpp"
#include "launcher/agent/ranks/programs.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/agent/signs/signs.hpp"
#include "launcher/job/container.hpp"
#include "launcher/job/requeue.hpp"
#include "launcher/job/run_owner.hpp"
#include "launcher/job/step_watch.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/supervise/agent_ports.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/roster.hpp"
#include "slurm/hostlist.hpp"
#include "slurm/job_env.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/adapters.hpp"
#include "src/config/load.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"
#include "src/control/names.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr Millis first_pause{500}, longest_pause{15000};  // before an agent step is started again
constexpr Millis steps_limit{10000};                      // for the other steps, once the run is over
constexpr Millis probe_tick{500}, probe_limit{3000};      // for probes of the agents
constexpr Millis answering_period{5000};                  // between probes of an agent that answers
constexpr Millis silent_period{1000};                     // between probes of one that does not
constexpr double shared_start_s = 120;  // then, or after supervise.start_s, a node without an agent gets a
                                        // step of its own
constexpr double reach_s = 10;          // an agent that answered within this time counts as reached
constexpr std::chrono::seconds cut_off_limit{300};
constexpr Millis drain_poll{200}, same_signal{2000};
constexpr Millis names_limit{5000};  // to look up the names of all nodes

/// The nodes of the job as SLURM reports them now; if it does not answer, those of the job's start (the
/// variables may be stale, but a node where no agent can be started counts as lost).
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

/// The GPUs that SLURM gave the job, which may be more than it asked for: all of a node for an exclusive job.
std::map<std::string, int> gpus_of(slurm::Cluster& cluster, slurm::JobId job) {
  try {
    return cluster.gpus(job);
  } catch (const Error& error) {
    log::warn("{}; agents get the GPUs that the job asked for", error.what());
    return {};
  }
}

/// The IP addresses of nodes that SLURM knows by a name: a node that cannot resolve the name of another uses
/// them.
void look_up_names(Roster& roster) {
  std::vector<std::string> names;
  for (const auto& node : roster.nodes)
    if (!control::is_ip_address(node.address)) names.push_back(node.address);
  auto found = control::look_up_all(names, names_limit);
  for (auto& node : roster.nodes) {
    const auto here = found.find(node.address);
    if (here == found.end()) continue;
    if (!here->second.why.empty())
      log::warn("the address of node {}: {}; the other nodes have to know it", node.name, here->second.why);
    node.ip_addresses = std::move(here->second.addresses);
  }
}

/// `port`: of supervise.port; 0: one that is free of other uses on this machine.
Roster make_roster(const Plan& plan, slurm::Cluster& cluster, slurm::JobId job, int port) {
  if (port == 0) port = first_port(job, taken_ports());
  std::vector<std::string> names;
  for (const auto& node : plan.nodes) names.push_back(node.name);
  std::map<std::string, std::string> addresses;
  try {
    for (const auto& node : cluster.nodes(names)) addresses[node.name] = node.address;
  } catch (const Error& error) {
    log::warn("{}; node names serve as addresses", error.what());
  }
  Roster roster;
  roster.ranks_per_node = plan.ranks_per_node;
  roster.candidates = plan.leaders;
  roster.first_placement.resize(plan.active);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const auto& node = plan.nodes[i];
    const auto known = addresses.find(node.name);
    roster.nodes.push_back({node.name, known == addresses.end() ? node.name : known->second, port,
                            node.scalable_unit, 0, std::min(ports_per_agent, highest_port - port + 1)});
    if (node.slot >= 0) roster.first_placement[node.slot] = static_cast<int>(i);
    if (node.batch_host) roster.batch_host = static_cast<int>(i);
  }
  look_up_names(roster);
  return roster;
}

/// Of a log; "" when it cannot be read.
std::string last_line(const files::fs::path& log) {
  std::string text = log_tail(log);
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
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

class JobMonitor {
 public:
  JobMonitor(const RunDir& run, slurm::Cluster& cluster, const slurm::JobEnv& env, const Roster& roster,
             std::map<std::string, int> gpus, const config::RunConfig& config,
             std::vector<std::string> mounts, Millis shutdown_limit)
      : run_(run),
        cluster_(cluster),
        env_(env),
        job_(roster.job),
        gpus_(std::move(gpus)),
        config_(config),
        mounts_(std::move(mounts)),
        secret_(control::read_secret(run.secret())),
        children_(loop_),
        drain_s_(config.checkpoint.drain_s),
        shutdown_limit_(shutdown_limit) {
    for (const auto& node : roster.nodes) steps_[node.name].address = node.agent();
  }

  /// Has SLURM, or the user who runs this by hand, told the job to end?
  bool told_to_end() const { return ending_.has_value(); }

  int run() {
    const auto signals =
        loop_.on_signals({SIGTERM, SIGINT, SIGUSR1}, [this](int signal) { signalled(signal); });
    start_all();
    const auto probes = loop_.every(probe_tick, [this] { probe_agents(); });
    loop_.run();
    return *code_;
  }

 private:
  struct Step {
    control::TcpAddress address;
    pid_t pid = 0;
    Millis pause = first_pause;
    control::Loop::Handle again;
    control::ChannelPtr channel;
    Clock::time_point next_probe;
    StepWatch watch;
    std::string trouble;  ///< why its agent was not reached last
  };

  /// SIGUSR1: the time limit is near. SIGTERM: the job is cancelled, requeued or preempted. In both cases the
  /// run has drain_s to save its state; then its outcome decides.
  void signalled(int signal) {
    if (code_) return;
    const auto now = Clock::now();
    const bool ends = signal != SIGUSR1;
    // SLURM signals the whole job: this process, and the script, which passes the signal on.
    if (ends && ending_ && now - *ending_ > same_signal) {
      log::info("signal {} again: ending the agents", signal);
      end_steps();
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
    log::warn("signal {}: requesting a checkpoint, then {}", signal,
              ends ? "the end" : "back into the queue: the time limit is near");
    drain_ = control::Drain{true, ends ? "SIGTERM" : "SIGUSR1: the time limit is near"};
    drain_watch_ = loop_.every(drain_poll, [this] { follow_record(); });
    for (auto& [node, step] : steps_) step.channel.reset(), probe(step);
  }

  /// What the event log says, for `then`; shared storage may keep it waiting. Nothing when it cannot be read.
  void read_record(std::function<void()> then) {
    reader_.ask(
        [run = run_]() -> std::optional<RunState> {
          try {
            return replay(run);
          } catch (const Error& error) {
            log::warn("the event log cannot be read: {}", error.what());
            return std::nullopt;
          }
        },
        [this, then = std::move(then)](std::optional<RunState> read) {
          if (code_) return;
          known_ = std::move(read);
          if (known_ && known_->outcome && known_->job == job_) {  // not the outcome of an earlier job
            log::info("the run is over: {} {}", known_->outcome->status, known_->outcome->why);
            return leave(known_->outcome->exit_code);
          }
          if (then) then();
        });
  }
  /// The same again and again, while it is of use.
  void follow_record() {
    if (!reader_.busy_for()) read_record(nullptr);
  }

  void probe_agents() {
    if (code_) return;
    if (cut_off()) return leave(static_cast<int>(Exit::transient));
    bool kills = false;
    for (auto& [node, step] : steps_) {
      if (wants_new_step(node, step)) {
        const bool has_step = step.pid > 0 || shares_step(node);
        if (!has_step) renew(node, step);
        kills = kills || has_step;
      }
      if (!step.channel && Clock::now() >= step.next_probe) probe(step);
    }
    if (kills && !reader_.busy_for()) read_record([this] { renew_silent(); });
  }

  /// A step that nodes share may need long for some of them: a Prolog, a node that does not answer.
  bool wants_new_step(const std::string& node, const Step& step) const {
    const bool may_still_start = shares_step(node) && !step.watch.heard_since_start() &&
                                 steady_seconds() - step.watch.started_at() <
                                     std::max<double>(shared_start_s, config_.supervise.start_s);
    return !may_still_start && step.watch.wants_new_step(steady_seconds());
  }
  bool shares_step(const std::string& node) const {
    return std::any_of(shared_steps_.begin(), shared_steps_.end(), [&](const auto& shared) {
      const auto& nodes = shared.second.nodes;
      return shared.second.pid > 0 && std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    });
  }

  /// The end of a step ends the ranks in it: a step of a node that trains, as far as is known, is left alone,
  /// however long its agent is silent. The leader, which asks the others, may find that the node is lost.
  void renew_silent() {
    if (!known_) return;
    for (auto& [node, step] : steps_)
      if ((step.pid > 0 || shares_step(node)) && !known_->trains_on(node) && wants_new_step(node, step))
        renew(node, step);
  }

  /// Starts a new srun for an agent that does not answer: the old one may wait for ever for a node that was
  /// lost.
  void renew(const std::string& node, Step& step) {
    if (ending_) return;
    if (step.watch.came_back()) log::info("{} is back", node), step.pause = first_pause;
    step.watch.started(steady_seconds());  // even if it fails: not again at once
    if (step.pid > 0) {
      ::kill(step.pid, SIGKILL);  // its end starts the next one
    } else if (!step.again || step.pause == first_pause) {
      step.again.reset();
      start({node});
    }
  }

  void probe(Step& step) {
    const auto done = [this, &step](StepWatch::Probe what) {
      step.watch.probed(what, steady_seconds());
      // Of a step of its own the end tells that an agent is gone; of one that nodes share only this does.
      step.next_probe =
          Clock::now() + (step.watch.answers() && step.pid > 0 ? answering_period : silent_period);
      // Not from inside the channel's own call; and meanwhile a drain may have opened another channel.
      loop_.post([&step, over = step.channel] {
        if (step.channel == over) step.channel.reset();
      });
    };
    step.channel = control::dial(
        loop_, step.address, secret_, probe_limit,
        {[this, &step, done] {
           step.pause = first_pause;
           step.trouble.clear();
           if (drain_) request_drain(*step.channel);
           step.channel->close();
           done(StepWatch::Probe::answers);
         },
         nullptr,
         [this, &step, done](const std::string& why) {
           note_trouble(step, why);
           done(control::nobody_listens(why) ? StepWatch::Probe::refuses : StepWatch::Probe::silent);
         }});
  }

  /// That nobody listens is usual while agents start.
  static void note_trouble(Step& step, const std::string& why) {
    if (std::exchange(step.trouble, why) == why || why == control::refusal()) return;
    log::warn("no connection to the agent at {}: {}", control::to_text(step.address), why);
  }

  /// Every agent that gets it tells the leader, and the next leader too.
  void request_drain(control::Channel& channel) const {
    control::Hello hello;
    hello.role = control::Hello::Role::job_monitor;
    channel.send(control::encode(hello));
    channel.send(control::encode(*drain_));
  }

  /// With fewer than half of the agents no leader can be elected, and training stops. After a while the job
  /// is requeued for other nodes.
  bool cut_off() {
    const auto reached = [now = steady_seconds()](const Step& step) {
      return step.watch.reached_within(reach_s, now);
    };
    if (std::all_of(steps_.begin(), steps_.end(), [&](const auto& s) { return reached(s.second); })) {
      enough_since_ = Clock::now();
      return false;
    }
    if (Clock::now() - enough_since_ < cut_off_limit / 2) return false;  // the event log need not be read yet
    follow_record();
    int voters = 0, here = 0;
    for (const auto& [node, step] : steps_)
      if (!known_ || !known_->lost.contains(node)) {
        ++voters;
        here += reached(step);
      }
    if (2 * here >= voters) enough_since_ = Clock::now();
    if (Clock::now() - enough_since_ < cut_off_limit) return false;
    log::error("only {} of {} agents have answered for {} s: back into the queue", here, voters,
               cut_off_limit.count());
    end_steps();
    return true;
  }

  // Nodes of equal GPUs share a step at first: a controller that limits the requests of a user starts
  // hundreds of agents as quickly as one.

  int gpus_on(const std::string& node) const {
    const auto here = gpus_.find(node);
    return here == gpus_.end() ? 0 : here->second;
  }

  void start_all() {
    std::map<int, std::vector<std::string>> alike;
    for (const auto& [node, step] : steps_) alike[gpus_on(node)].push_back(node);
    for (const auto& [gpus, nodes] : alike) start(nodes);
  }

  void start(const std::vector<std::string>& nodes) {
    slurm::StepRequest request;
    request.job = env_.job;
    request.nodes = nodes;
    request.command = {this_program().string(), "agent", run_.path.string()};
    request.output = agent_log(run_, nodes.size() == 1 ? nodes.front() : std::string(slurm::node_in_path));
    request.gpus = gpus_on(nodes.front());
    run_in_image(request, config_, mounts_);
    for (const auto& node : nodes) steps_[node].watch.started(steady_seconds());
    if (nodes.size() > 1) shared_steps_[nodes.front()].nodes = nodes;
    try {
      pid_of(nodes) = children_.start(cluster_.step_command(request),
                                      [this, nodes](int status) { ended(nodes, status); });
    } catch (const Error& error) {
      log::warn("the agent step on {} cannot be started: {}", slurm::compress(nodes), error.what());
      ended(nodes, static_cast<int>(Exit::runtime));
    }
  }

  /// Of the step on these nodes.
  pid_t& pid_of(const std::vector<std::string>& nodes) {
    return nodes.size() == 1 ? steps_[nodes.front()].pid : shared_steps_[nodes.front()].pid;
  }

  void end_steps() {
    for (const auto& [node, step] : steps_)
      if (step.pid > 0) ::kill(step.pid, SIGTERM);
    for (const auto& [first, step] : shared_steps_)
      if (step.pid > 0) ::kill(step.pid, SIGTERM);
  }
  bool no_step_is_left() const {
    const auto over = [](const auto& s) { return s.second.pid == 0; };
    return std::all_of(steps_.begin(), steps_.end(), over) &&
           std::all_of(shared_steps_.begin(), shared_steps_.end(), over);
  }

  /// The exit code of srun means little; the event log tells whether the run is over.
  void ended(const std::vector<std::string>& nodes, int status) {
    pid_of(nodes) = 0;
    if (code_) {
      if (no_step_is_left()) loop_.stop();
      return;
    }
    read_record([this, nodes, status] {
      if (nodes.size() == 1)
        start_later(nodes.front(), status);
      else
        split_later(nodes, status);
    });
  }

  /// A node that SLURM cannot reach makes it refuse the whole step: the half without it starts.
  void split_later(const std::vector<std::string>& nodes, int status) {
    if (ending_) return;
    log::warn("the step of agents on {} ended with {}; starting it again in halves", slurm::compress(nodes),
              status);
    shared_steps_[nodes.front()].again = loop_.after(first_pause, [this, nodes, ended = steady_seconds()] {
      const auto keep = std::move(shared_steps_[nodes.front()].again);
      std::vector<std::string> missing;
      for (const auto& node : nodes)
        if (const Step& now = steps_[node];
            now.pid == 0 && !now.again &&
            !now.watch.reached_within(steady_seconds() - ended, steady_seconds()))
          missing.push_back(node);
      const auto middle = missing.begin() + std::ssize(missing) / 2;
      for (const auto& half : {std::vector(missing.begin(), middle), std::vector(middle, missing.end())})
        if (!half.empty()) start(half);
    });
  }

  void start_later(const std::string& node, int status) {
    Step& step = steps_[node];
    if (ending_ || step.pid > 0 || step.again) return;  // SLURM starts nothing any more in a job that ends
    reader_.ask([log = agent_log(run_, node)] { return last_line(log); },
                [node, status, pause = step.pause](const std::string& said) {
                  log::warn("the agent step on {} ended with {}; starting it again in {} ms{}", node, status,
                            pause.count(), said.empty() ? "" : "; its log ends with: " + said);
                });
    step.again = loop_.after(step.pause, [this, node, ended = steady_seconds()] {
      Step& now = steps_[node];
      const auto keep = std::move(now.again);
      // The agent of an earlier step may have answered meanwhile.
      if (!now.watch.reached_within(steady_seconds() - ended, steady_seconds())) start({node});
    });
    step.pause = std::min(step.pause * 2, longest_pause);
  }

  void leave(int code) {
    if (code_) return;
    code_ = code;
    drain_watch_.reset(), drain_limit_.reset();
    for (auto& [node, step] : steps_) step.again.reset();
    for (auto& [first, step] : shared_steps_) step.again.reset();
    limit_ = loop_.after(shutdown_limit_, [this] { loop_.stop(); });  // steps of lost nodes never end
    if (no_step_is_left()) loop_.stop();
  }

  RunDir run_;
  slurm::Cluster& cluster_;
  slurm::JobEnv env_;
  std::string job_;
  std::map<std::string, int> gpus_;  ///< that the job has on each node
  config::RunConfig config_;
  std::vector<std::string> mounts_;  ///< of the image, where there is one
  control::Key secret_;
  control::Loop loop_;
  control::Worker reader_{loop_};
  std::optional<RunState> known_;  ///< what the event log said last
  Children children_;
  std::map<std::string, Step> steps_;  ///< by node
  struct SharedStep {
    std::vector<std::string> nodes;
    pid_t pid = 0;
    control::Loop::Handle again;
  };
  std::map<std::string, SharedStep> shared_steps_;  ///< on several nodes, by the first of them
  std::optional<int> code_;
  std::optional<control::Drain> drain_;      ///< requested from every agent that answers
  std::optional<Clock::time_point> ending_;  ///< when the job was told to end
  int drain_s_;
  Millis shutdown_limit_;
  control::Loop::Handle limit_, drain_watch_, drain_limit_;
  Clock::time_point enough_since_ = Clock::now();
};

}  // namespace

std::string allocation_name(slurm::JobId job, int restarts, bool again_by_hand, const RunState& before) {
  const std::string first = std::to_string(job) + "." + std::to_string(restarts);
  const bool later = before.job.starts_with(first + ".");
  if (!again_by_hand || (before.job != first && !later)) return first;
  if (!before.outcome) return before.job;  // its job monitor died, and this one goes on
  const int tries = later ? std::stoi(before.job.substr(first.size() + 1)) : 1;
  return first + "." + std::to_string(tries + 1);
}

int monitor_job(const RunDir& run, slurm::Cluster& cluster) {
  const auto env = slurm::job_env();
  confirm_owner(run, env.job, cluster);
  const auto config = config::load(run.config()).config;
  const auto model = config::model_of(config);
  const auto facts = config::load_cluster(run.cluster().string());
  const std::string ledger = config.supervise.ledger.empty() ? facts.ledger : config.supervise.ledger;
  const auto here = allocation(cluster, env);
  const Plan plan = make_plan(config, model, facts, here.nodes, here.batch_host);
  for (const auto& warning : plan.warnings) log::warn("{}", warning);
  write_plan(run, plan);
  Roster roster = make_roster(plan, cluster, env.job, config.supervise.port);
  roster.job = allocation_name(env.job, env.restarts, !env.in_batch_script(), replay(run));
  const auto past = histories(ledger, roster);
  for (auto& node : roster.nodes)
    if (const auto known = past.find(node.name); known != past.end())
      node.past_failures = known->second.past_failures();
  files::replace_atomically(run.nodes(), to_json_text(roster));
  log::info("job {}: {} active nodes, {} spares, {} ranks; agents on a port from {} to {}", env.job,
            plan.active, plan.spares, plan.world(), roster.nodes.front().port,
            roster.nodes.front().port + roster.nodes.front().ports - 1);
  // Children of another program's ranks may still save when the ranks have ended.
  const Millis shutdown_limit =
      own_trainer(config.rank)
          ? steps_limit
          : std::max(steps_limit, Millis(std::chrono::seconds(config.checkpoint.drain_s)) + same_signal);
  check_runtime(config.container, true);
  JobMonitor monitor(run, cluster, env, roster, gpus_of(cluster, env.job), config,
                     mounts_of(config, facts, run, this_program()), shutdown_limit);
  const int code = monitor.run();
  try {
    print_admin_lines(run, roster.job);
    if (code == static_cast<int>(Exit::transient) && !monitor.told_to_end()) {
      if (env.in_batch_script()) {
        // SLURM ends a job that it requeues: this process must live until it has set the nodes to exclude.
        ::signal(SIGTERM, SIG_IGN);
        if (cluster.requeues_at_its_end(env.job))
          log::info("SLURM preempts job {}, and puts it back into the queue itself", env.job);
        else
          requeue_job(run, cluster, env.job, roster, ledger);
      } else {
        log::warn("the run can be continued: 'holdfast run {}' in this or another allocation",
                  run.path.string());
      }
    }
  } catch (const Error& error) {
    log::warn("{}", error.what());  // the batch script requeues too
  }
  return code;
}

}  // namespace holdfast::launcher
