// The runs of a drill are folders of at_, which is named by the time at which the drill began. Runs of
// baselines lie beside at_, and later drills use them, too, if the settings on which bits depend and the
// checksum of the trainer are the same. submit() writes a job file and a model file beside the run's folder,
// and calls `holdfast submit`. view() reads the run directory; job() asks SLURM, and takes no answer for
// Job::unknown.
//
// inject() takes the way that the fault's injector names: the verbs `inject` and `ctl`, a verb of the
// minipod, a command of SLURM, or bytes written into a shard file. It returns the moment that the injector
// tells, or else one just before it acted.
//
// in_cluster() makes a command run inside the minipod, if there is one. must() throws Error for a command
// that fails or does not end in time; only asking for, starting and cancelling a job go on without an answer.
#include "launcher/drill/live_testbed.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "launcher/drill/run_view.hpp"
#include "slurm/commands.hpp"
#include "slurm/job_commands.hpp"
#include "slurm/replies.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr std::chrono::seconds short_limit{15}, submit_limit{90}, fault_limit{100}, heal_limit{240};
constexpr Millis ask_limit{3000};
constexpr std::uint64_t max_seed = 1ull << 53;  ///< whole numbers that every JSON reader keeps
constexpr const char* pod_home = "/shared/home";

std::string words(const std::vector<std::string>& argv) { return fmt::format("{}", fmt::join(argv, " ")); }

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);
}

slurm::JobId number(const std::string& id) { return std::stoll(id); }

}  // namespace

LiveTestbed::LiveTestbed(LiveOptions options) : options_(std::move(options)) {
  if (!options_.minipod.empty()) {
    options_.minipod = fs::canonical(options_.minipod);
    if (::geteuid() != 0)
      throw Error(Exit::usage, "a drill in a minipod must be root",
                  "it breaks nodes and reads their user's files", "Run it with sudo?");
    const fs::path named = options_.minipod / "script";
    if (!files::exists_or_fail(named))
      throw Error(Exit::usage, "no minipod is up in " + options_.minipod.string(), "it has no file 'script'",
                  "Start one with 'minipod up --nodes 4'?");
    script_ = last_line(files::read_text(named));
    if (options_.work.empty()) options_.work = options_.minipod / "shared/home/drills";
  } else if (options_.work.empty()) {
    options_.work = "drills";
  }
  options_.work = fs::absolute(options_.work).lexically_normal();
  if (!script_.empty()) inside(options_.work);
  std::string stamp = utc_iso8601(unix_seconds()).substr(0, 19);
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  at_ = options_.work / stamp;
  make_folder(at_);
}

// --- the cluster, from here ---

fs::path LiveTestbed::inside(const fs::path& path) const {
  if (script_.empty()) return path;
  const auto relative = path.lexically_relative(options_.minipod / "shared");
  if (relative.empty() || *relative.begin() == "..")
    throw Error(Exit::usage, path.string() + " is not in the minipod",
                "its nodes see " + (options_.minipod / "shared").string() + " alone");
  return fs::path("/shared") / relative;
}

std::vector<std::string> LiveTestbed::in_cluster(std::vector<std::string> argv) const {
  if (script_.empty()) return argv;
  std::vector<std::string> out = {script_, "--dir", options_.minipod.string(), "exec", "--chdir", pod_home};
  out.insert(out.end(), argv.begin(), argv.end());
  return out;
}

/// In a minipod: the program that its nodes run.
std::string LiveTestbed::program() const { return script_.empty() ? options_.program.string() : "holdfast"; }

const std::string& LiveTestbed::trainer_identity() {
  if (!trainer_.empty()) return trainer_;
  const std::string where = script_.empty() ? options_.trainer.string() : std::string("holdfast-train");
  const std::vector<std::string> argv = {"/bin/sh", "-c", "cksum <\"$(command -v \"$1\")\"", "sh", where};
  return trainer_ = last_line(must(in_cluster(argv), short_limit, "the trainer cannot be read"));
}

std::string LiveTestbed::must(const std::vector<std::string>& argv, std::chrono::seconds limit,
                              const std::string& what) const {
  const Finished done = run({argv, {}, {}, {}, false, true, false}, limit);
  if (done.timed_out)
    throw Error(Exit::runtime, what, fmt::format("no answer within {} s", limit.count()), words(argv));
  if (done.status != 0)
    throw Error(Exit::runtime, what, last_line(done.err.empty() ? done.out : done.err), words(argv));
  return done.out;
}

void LiveTestbed::make_folder(const fs::path& path) const {
  if (script_.empty())
    fs::create_directories(path);
  else
    must(in_cluster({"mkdir", "-p", inside(path).string()}), short_limit, "cannot make " + path.string());
}

double LiveTestbed::now() { return unix_seconds(); }
void LiveTestbed::wait(Millis duration) { std::this_thread::sleep_for(duration); }

void LiveTestbed::heal() {
  if (!script_.empty())
    must({script_, "--dir", options_.minipod.string(), "heal"}, heal_limit, "the minipod cannot be healed");
}

// --- runs ---

config::RunConfig LiveTestbed::config_with(const std::vector<std::string>& sets) const {
  std::vector<std::string> all = sets;
  all.insert(all.end(), options_.sets.begin(), options_.sets.end());
  all.emplace_back("drill.allowed=true");
  return config::load(options_.job, all).config;
}

std::string LiveTestbed::submit(const std::string& name, const std::vector<std::string>& sets) {
  config::RunConfig config = config_with(sets);
  const fs::path folder = path_of(name);
  config.run.dir = inside(folder).string();
  config.run.name = "drill-" + folder.filename().string();
  // The nodes must find every file that the job names: the model file is written beside it.
  const fs::path model = folder.string() + ".model.toml", job = folder.string() + ".job.toml";
  files::replace_atomically(model, config::to_toml(config::load_model(config.model.file)), 0644);
  config.model.file = inside(model).string();
  // In a minipod another user reads it.
  files::replace_atomically(job, config::to_toml(config), script_.empty() ? files::for_owner : 0644);
  const std::string out = must(in_cluster({program(), "submit", inside(job).string(), "--parsable"}),
                               submit_limit, "the job cannot be submitted");
  return std::to_string(slurm::read_submitted(last_line(out)));
}

void LiveTestbed::hold(const std::string& name, double least_step_s, double longest_s) {
  files::replace_atomically(RunDir{path_of(name)}.hold(), fmt::format("{} {}\n", least_step_s, longest_s),
                            0644);
}

void LiveTestbed::release(const std::string& name) { fs::remove(RunDir{path_of(name)}.hold()); }

RunView LiveTestbed::view(const std::string& name) { return read_run_view(RunDir{path_of(name)}); }

bool LiveTestbed::every_step_once(const std::string& name, std::int64_t steps) {
  return has_every_step_once(RunDir{path_of(name)}, steps);
}

std::optional<Baseline> LiveTestbed::known_baseline(const std::vector<std::string>& sets, std::string& name) {
  // Only the settings that bits depend on: the same baseline serves many cases and drills.
  const config::RunConfig asked = config_with(sets);
  config::RunConfig bits;
  bits.data = asked.data, bits.train = asked.train, bits.optim = asked.optim,
  bits.precision = asked.precision;
  bits.fp8 = asked.fp8;
  bits.guard = asked.guard;
  if (bits.train.lanes == 0) bits.cluster = asked.cluster;  // the number of replicas decides
  // Another build may compute other bits, which must not be compared with those of an older one.
  const std::string text =
      config::to_toml(bits) + config::to_toml(config::load_model(asked.model.file)) + trainer_identity();
  const std::string key = fmt::format("baseline-{:016x}", mix64(hash_name(text.data(), text.size())));
  name = "../" + key;
  const fs::path folder = options_.work / key;
  const RunDir run{folder};
  if (files::exists_or_fail(run.result())) {
    const json result = json_from(files::read_text(run.result()));
    if (typed<std::string>(result, "status") == "done" && result["attempts"].size() == 1)
      return Baseline{typed<std::int64_t>(result, "final_step").value_or(0),
                      typed<std::string>(result, "state_digest").value_or("")};
  }
  fs::remove_all(folder);  // left by a drill that was interrupted
  return std::nullopt;
}

// --- SLURM ---

Testbed::Job LiveTestbed::job(const std::string& id) {
  const Finished done =
      run({in_cluster(slurm::job_argv(number(id))), {}, {}, {}, false, true, false}, ask_limit);
  if (done.timed_out) return Job::unknown;
  if (done.status != 0)
    return done.err.find("Invalid job id") != std::string::npos ? Job::gone : Job::unknown;
  const auto job = slurm::read_job(done.out, number(id));
  if (!job) return Job::gone;
  switch (job->state) {
    case slurm::JobState::pending:
      return Job::waiting;
    case slurm::JobState::running:
      return Job::running;
    case slurm::JobState::completing:
      return Job::leaving;
    case slurm::JobState::finished:
      return Job::gone;
  }
  return Job::unknown;
}

void LiveTestbed::start_now(const std::string& id) {
  if (script_.empty()) return;  // elsewhere only the administrator may
  const auto argv = in_cluster(slurm::start_now_argv(number(id)));
  run({argv, {}, {}, {}, false, true, false},
      ask_limit);  // refused until its old nodes are free; it is asked again
}

void LiveTestbed::cancel(const std::string& id) {
  const auto argv = in_cluster(slurm::cancel_argv(number(id)));
  const Finished done = run({argv, {}, {}, {}, false, true, false}, short_limit);
  if (done.timed_out || done.status != 0)
    log::warn("job {} cannot be cancelled: {}", id, last_line(done.err));
}

void LiveTestbed::slurm_act(const std::string& act, const std::string& id) {
  const auto job = number(id);
  const auto argv = act == "cancel"    ? slurm::cancel_argv(job)
                    : act == "requeue" ? slurm::requeue_argv(job)
                    : act == "preempt" ? slurm::signal_all_argv(job, "TERM")
                                       : slurm::signal_script_argv(job, act);
  must(in_cluster(argv), short_limit, "SLURM has refused");
}

// --- injections ---

double LiveTestbed::inject(const ChosenFault& what, const std::string& name, const std::string& id) {
  const RunDir run{path_of(name)};
  const std::string act = what.undo ? what.fault->undo : what.fault->act;
  const double before = unix_seconds();
  switch (what.fault->injector) {
    case Injector::agent:
    case Injector::rank:
      return inject_through_agent(what, run);
    case Injector::order: {
      std::vector<std::string> argv = {program(), "ctl", inside(run.path).string(), act};
      argv.insert(argv.end(), what.nodes.begin(), what.nodes.end());
      must(in_cluster(argv), short_limit, "the order was not taken");
      return before;
    }
    case Injector::minipod:
      if (act == "kill-agents") return kill_agents(what.nodes.front());
      return minipod_verb(act, what.nodes);
    case Injector::slurm:
      slurm_act(act, id);
      return before;
    case Injector::files:
      return damage_newest(run, what.seed);
  }
  return before;
}

/// The program that it calls prints the moment: running a command in a cluster takes time.
double LiveTestbed::inject_through_agent(const ChosenFault& what, const RunDir& run) {
  std::vector<std::string> argv = {program(),
                                   "inject",
                                   inside(run.path).string(),
                                   what.nodes.front(),
                                   what.fault->act,
                                   "--seconds",
                                   fmt::format("{}", what.seconds),
                                   "--seed",
                                   std::to_string(what.seed % max_seed)};
  if (what.rank >= 0) argv.insert(argv.end(), {"--rank", std::to_string(what.rank)});
  return std::stod(last_line(must(in_cluster(argv), short_limit, "the fault was not taken")));
}

double LiveTestbed::minipod_verb(const std::string& verb, const std::vector<std::string>& nodes) {
  std::vector<std::string> argv = {script_, "--dir", options_.minipod.string(), verb};
  argv.insert(argv.end(), nodes.begin(), nodes.end());
  const fs::path log = options_.minipod / "faults.jsonl";
  const auto size = fs::file_size(log);
  must(argv, fault_limit, "the minipod has refused");
  // Its fault log has the moment; the first new line is ours.
  const std::string text = files::read_text(log).substr(size);
  const json line = json_from(first_line(text));
  return typed<double>(line, "unix").value_or(unix_seconds());
}

/// Agent and guardian, not srun, which only has their command line among its arguments.
double LiveTestbed::kill_agents(const std::string& node) const {
  const double at = unix_seconds();
  must({script_, "--dir", options_.minipod.string(), "exec", "--root", "--node", node, "--chdir", "/",
        "pkill", "-KILL", "-f", "^[^ ]*holdfast agent "},
       short_limit, "the supervisors cannot be killed");
  return at;
}

double LiveTestbed::damage_newest(const RunDir& run, std::uint64_t seed) const {
  std::string newest;
  for (const auto& entry : files::list(run.checkpoints()))
    if (entry.starts_with("step-") && entry.find('.') == std::string::npos) newest = entry;
  std::vector<fs::path> shards;
  if (!newest.empty())
    for (const auto& file : files::list(run.checkpoints() / newest))
      if (file.starts_with("shard-")) shards.push_back(run.checkpoints() / newest / file);
  if (shards.empty())
    throw Error(Exit::runtime, "there is no checkpoint to damage", run.checkpoints().string() + " has none");
  const fs::path shard = shards[seed % shards.size()];
  const double at = unix_seconds();
  const auto fd = files::open(shard, O_WRONLY);
  // Near the end: tensor data. The head holds HDF5's own tables, which loading does not need.
  const char damage[] = {'\xff', '\x55', '\xaa'};
  const auto size = fs::file_size(shard);
  files::write_all(fd.get(), damage, sizeof damage, size - std::min<std::uintmax_t>(size, 5000), shard);
  return at;
}

}  // namespace holdfast::launcher
