// The life of `holdfast run`, from top to bottom of monitor_job(): the run directory is this job's, the plan
// is made for the nodes that there are, unless this process has set the run up for them, nodes.json is
// written, and JobMonitor starts an agent on each.
//
// JobMonitor starts agents that are missing, and waits for one of these ends:
// - the event log has an outcome: that is the exit code;
// - a signal: agents are asked to save, and the outcome decides. A second signal ends the agents;
// - too few agents answer, or SLURM refuses every step: 75, for other nodes.
//
// It decides nothing about training.
#include "launcher/job/job_monitor.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/job/agent_probe.hpp"
#include "launcher/job/agent_steps.hpp"
#include "launcher/job/container.hpp"
#include "launcher/job/progress_teller.hpp"
#include "launcher/job/requeue.hpp"
#include "launcher/job/run_owner.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/plan/rank_work.hpp"
#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/roster.hpp"
#include "slurm/batch_script.hpp"
#include "slurm/job_env.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/own_run.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/adapters.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr Millis steps_limit{10000};    // for the other steps, once the run is over
constexpr Millis probe_tick{500};       // for probes of the agents
constexpr double shared_start_s = 120;  // then, or after supervise.start_s, a node without an agent gets a
                                        // step of its own
constexpr double reach_s = 10;          // an agent that answered within this time counts as reached
constexpr std::chrono::seconds cut_off_limit{300};
constexpr Millis drain_poll{200}, same_signal{2000};

void write_plan(const RunDir& run, const Plan& plan) {
  json hypothetical = nullptr;
  if (files::exists_or_fail(run.plan())) {
    const json before = json_from(files::read_text(run.plan()));
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
  JobMonitor(const RunDir& run, slurm::Cluster& cluster, const Roster& roster, AgentSteps::Setup steps,
             int drain_s, Millis shutdown_limit, bool in_script, ProgressTeller::Setup told)
      : run_(run),
        job_(roster.job),
        in_script_(in_script),
        secret_(control::read_secret(run.secret())),
        steps_(loop_, cluster, std::move(steps),
               {[this](std::function<void()> then) { read_record(std::move(then)); },
                [this](const std::string& why) { steps_are_refused(why); }, [this] { loop_.stop(); }}),
        drain_s_(drain_s),
        shutdown_limit_(shutdown_limit),
        teller_(loop_, cluster, std::move(told)) {
    for (const auto& node : roster.nodes)
      agents_.try_emplace(
          node.name, loop_, node.agent(), secret_,
          AgentProbe::Hooks{[this, name = node.name](StepWatch::Probe what) { steps_.probed(name, what); },
                            [this](control::Channel& agent) {
                              if (drain_) request_drain(agent);
                            }});
  }

  /// Has SLURM, or the user who runs this by hand, told the job to end?
  bool told_to_end() const { return ending_.has_value(); }

  int run() {
    ::signal(SIGPIPE, SIG_IGN);  // who reads its log may end first
    const auto hear = [this](int signal) { signalled(signal); };
    const auto signals = loop_.on_signals({SIGTERM, SIGINT, SIGUSR1}, hear);
    struct sigaction hangup {};
    control::Loop::Handle hangups;
    if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)  // nohup ignores it
      hangups = loop_.on_signals({SIGHUP}, hear);
    steps_.start_all();
    const auto probes = loop_.every(probe_tick, [this] { probe_agents(); });
    loop_.run();
    teller_.finish();
    return *code_;
  }

 private:
  /// SIGUSR1: the time limit is near. SIGTERM: the job is cancelled, requeued or preempted. In both cases the
  /// run has drain_s to save its state; then its outcome decides.
  void signalled(int signal) {
    if (code_) return;
    const auto now = Clock::now();
    const bool ends = signal != SIGUSR1;
    // SLURM signals the whole job: this process, and the script, which passes the signal on.
    if (ends && ending_ && (!in_script_ || now - *ending_ > same_signal)) {
      log::info("signal {} again: ending the agents", signal);
      steps_.terminate();
      return leave(128 + signal);
    }
    if (ends && !ending_) {
      ending_ = now;
      steps_.start_no_more();
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
    for (auto& [node, agent] : agents_)
      if (control::Channel* channel = agent.channel()) request_drain(*channel);
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
            log::info("the run is over: {}{}{}", known_->outcome->status,
                      known_->outcome->why.empty() ? "" : ", ", known_->outcome->why);
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
    if (!code_ && cut_off()) return leave(static_cast<int>(Exit::transient));
    if (!code_ && steps_.misses_agents() && !reader_.busy_for()) read_record([this] { renew_steps(); });
    for (auto& [node, agent] : agents_) agent.tick();
  }

  /// A step of a node that trains, as far as is known, is left alone, however long its agent is silent. The
  /// leader, which asks the others, may find that the node is lost.
  void renew_steps() {
    if (!known_) return;
    steps_.renew([this](const std::string& node) { return known_->trains_on(node); });
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
    const auto reached = [this, now = steady_seconds()](const auto& agent) {
      return agent.second.blind() || steps_.watch(agent.first).reached_within(reach_s, now);
    };
    if (std::all_of(agents_.begin(), agents_.end(), reached)) {
      enough_since_ = Clock::now();
      return false;
    }
    if (Clock::now() - enough_since_ < cut_off_limit / 2) return false;  // the event log need not be read yet
    follow_record();
    int voters = 0, here = 0;
    for (const auto& agent : agents_)
      if (!known_ || !known_->lost.contains(agent.first)) {
        ++voters;
        here += reached(agent);
      }
    if (2 * here >= voters) enough_since_ = Clock::now();
    if (Clock::now() - enough_since_ < cut_off_limit) return false;
    log::error("only {} of {} agents have answered for {} s: back into the queue", here, voters,
               cut_off_limit.count());
    steps_.terminate();
    return true;
  }

  void steps_are_refused(const std::string& why) {
    if (code_) return;
    log::error("no agent can be started (SLURM refuses every step: {}): back into the queue", why);
    steps_.terminate();
    leave(static_cast<int>(Exit::transient));
  }

  void leave(int code) {
    if (code_) return;
    code_ = code;
    drain_watch_.reset();
    drain_limit_.reset();
    limit_ = loop_.after(shutdown_limit_, [this] { loop_.stop(); });  // steps of lost nodes never end
    for (auto& [node, agent] : agents_) agent.hurry();
    steps_.stop();
  }

  RunDir run_;
  std::string job_;
  bool in_script_;  ///< which passes signals on, so that each may come twice
  control::Key secret_;
  control::RealLoop loop_;
  control::Worker reader_{loop_};
  std::optional<RunState> known_;  ///< what the event log said last
  AgentSteps steps_;
  std::map<std::string, AgentProbe> agents_;  ///< by node
  std::optional<int> code_;
  std::optional<control::Drain> drain_;      ///< requested from every agent that answers
  std::optional<Clock::time_point> ending_;  ///< when the job was told to end
  int drain_s_;
  Millis shutdown_limit_;
  control::Loop::Handle limit_, drain_watch_, drain_limit_;
  Clock::time_point enough_since_ = Clock::now();
  ProgressTeller teller_;
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

int comment_interval(const RunDir& run, int asked_s) {
  using std::filesystem::perms;
  constexpr perms needed = perms::group_read | perms::group_exec;
  std::error_code unknown;
  const perms given = std::filesystem::status(run.path, unknown).permissions();
  return !unknown && (given & needed) == needed ? asked_s : 0;
}

namespace {

/// Has the run ended so that the jobs behind it have nothing to do? A run that had too few nodes can go on
/// with those of the next job.
bool leaves_nothing_to_do(const RunState& state) {
  return state.over_for_good() && state.outcome->exit_code != static_cast<int>(Exit::out_of_spares);
}

/// For a job that was submitted behind the owner of the run directory: the exit code with which it ends at
/// once. Nothing: its turn has come, or it is the owner.
std::optional<int> turn_of(const RunDir& run, slurm::Cluster& cluster, const slurm::JobEnv& env) {
  const auto owner = read_owner(run);
  if (!env.in_batch_script() || !owner || !owner->job || *owner->job == env.job) return std::nullopt;
  if (const auto other = live_owner(run, env.job, cluster)) {
    ::signal(SIGTERM, SIG_IGN);  // by which SLURM ends a job that it requeues
    log::warn("job {} has the run: job {} waits until it has ended", *other, env.job);
    cluster.requeue(env.job);
    cluster.wait_for(env.job, *other);
    return static_cast<int>(Exit::transient);
  }
  const RunState state = replay(run);
  if (!leaves_nothing_to_do(state)) return std::nullopt;
  log::info("the run has ended in job {}: {}{}{}; nothing is left for job {}", *owner->job,
            state.outcome->status, state.outcome->why.empty() ? "" : ", ", state.outcome->why, env.job);
  return state.outcome->exit_code;
}

/// A batch job whose time is up as soon as it begins would be requeued again and again.
void check_time_left(const config::RunConfig& config, double end_time, bool in_batch_script) {
  const double left = end_time - unix_seconds();
  const int needed =
      slurm::notice_for(config.checkpoint.drain_s, slurm::limit_in(config.slurm.time)) + slurm::early_s;
  if (left >= needed) return;
  const Error error(
      Exit::usage, fmt::format("the job ends in {:.0f} s, which leaves no time to train", left),
      fmt::format("the run is told to save {} s before, or a minute earlier", needed - slurm::early_s),
      "Give the job more time, or set slurm.time to its limit for a shorter notice?");
  if (in_batch_script) throw error;
  log::warn("{}", error.what());
}

}  // namespace

int monitor_job(const RunDir& run, config::ClusterFacts facts, slurm::Cluster& cluster,
                const slurm::JobEnv& env) {
  if (const auto code = turn_of(run, cluster, env)) return *code;
  confirm_owner(run, env.job, cluster);
  const auto here = allocation(cluster, env);
  Preparation prepared;
  prepared.run = run;
  RunFiles& files = prepared.files;
  files.facts = std::move(facts);
  files.config = config::load(run.config()).config;
  files.model = config::model_of(files.config);
  prepared.plan = make_plan(files.config, files.model, files.facts, here.nodes, here.batch_host);
  return monitor_job(prepared, here, cluster, env);
}

int monitor_job(const Preparation& prepared, const Allocation& here, slurm::Cluster& cluster,
                const slurm::JobEnv& env) {
  const RunDir& run = prepared.run;
  const config::RunConfig& config = prepared.files.config;
  const config::ClusterFacts& facts = prepared.files.facts;
  const Plan& plan = prepared.plan;
  require_own_run(run);  // now that its settings are read: somebody may have replaced it until then
  const std::string ledger = config.supervise.ledger.empty() ? facts.ledger : config.supervise.ledger;
  for (const auto& warning : plan.warnings) log::warn("{}", warning);
  write_plan(run, plan_for_group(plan, config));
  Roster roster = make_roster(plan, cluster, env.job, config.supervise.port);
  roster.work = rank_work(plan, config, prepared.files.model, facts);
  const RunState before = replay(run);
  roster.job = allocation_name(env.job, env.restarts, !env.in_batch_script(), before);
  // Not where the batch script starts a killed job monitor again.
  if (here.end_time && before.job != roster.job)
    check_time_left(config, *here.end_time, env.in_batch_script());
  const auto past = histories(ledger, roster);
  for (auto& node : roster.nodes)
    if (const auto known = past.find(node.name); known != past.end())
      node.past_failures = known->second.past_failures();
  const auto excluded =
      env.restarts > 0 ? exclusions_of(run, cluster, env.job, before, past) : slurm::OwnExclusions{};
  files::replace_atomically(run.nodes(), to_json_text(roster));
  log::info("job {}: {} active node{}, {} spare{}, {} ranks; agents listen on ports from {} to {}", env.job,
            plan.active, plan.active == 1 ? "" : "s", plan.spares, plan.spares == 1 ? "" : "s", plan.world(),
            roster.nodes.front().port, roster.nodes.front().port + roster.nodes.front().ports - 1);
  // What a rank has started may still save when the rank has ended.
  const Millis shutdown_limit =
      config::promises_of(config.rank).one_process
          ? steps_limit
          : std::max(steps_limit, Millis(std::chrono::seconds(config.checkpoint.drain_s)) + same_signal);
  check_runtime(config.container, true);
  AgentSteps::Setup steps;
  steps.run = run;
  steps.job = env.job;
  steps.trial_node = roster.nodes[std::max(roster.batch_host, 0)].name;
  for (const auto& node : roster.nodes) steps.nodes.push_back(node.name);
  steps.gpus = gpus_of(cluster, env.job);
  steps.into_image = [config, mounts = mounts_of(config, facts, run, this_program())](
                         slurm::StepRequest& step) { run_in_image(step, config, mounts); };
  steps.patience_s = std::max<double>(shared_start_s, config.supervise.start_s);
  ProgressTeller::Setup told{run, env.job, roster.job, {}, comment_interval(run, config.slurm.comment_s)};
  take_settings(config, told.facts);
  JobMonitor monitor(run, cluster, roster, std::move(steps), config.checkpoint.drain_s, shutdown_limit,
                     env.in_batch_script(), std::move(told));
  const int code = monitor.run();
  try {
    print_admin_lines(run, roster.job);
    if (code == static_cast<int>(Exit::transient) && !monitor.told_to_end() && env.in_batch_script()) {
      // SLURM ends a job that it requeues: this process must live until it has set the nodes to exclude.
      ::signal(SIGTERM, SIG_IGN);
      requeue_job(run, cluster, env.job, roster, ledger, excluded);
    }
  } catch (const Error& error) {
    log::warn("{}", error.what());  // the batch script requeues too
  }
  return code;
}

}  // namespace holdfast::launcher
