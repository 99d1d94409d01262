// How settings become a run. look_at() does not stop at the first problem: without a cluster, a model or a
// run directory it can look no further, but from there on it adds sbatch's options (they win over settings),
// resolves the settings, plans, and makes every further check, and keeps all that it finds. prepare() then
// writes the job's script in memory and throws all problems at once; nothing is on disk until then.
//
// The other functions are about a run directory that exists: may a further job wait for its turn in it
// (check_same_run), has an earlier job done all of it (is_done), and take_run_dir(), by which the job itself
// makes it its own. The job looks again once the directory is claimed, since another submit may have written
// to it in between.
#include "launcher/job/preparation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/job/container.hpp"
#include "launcher/job/job_script.hpp"
#include "launcher/job/run_history.hpp"
#include "launcher/job/run_owner.hpp"
#include "launcher/plan/survival.hpp"
#include "launcher/plan/topology.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/environment.hpp"
#include "slurm/job_env.hpp"
#include "slurm/site.hpp"
#include "src/base/access.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/config/adapters.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/shown.hpp"
#include "src/preflight/length.hpp"
#include "src/preflight/preflight.hpp"

namespace holdfast::launcher {

namespace {

/// An option of sbatch wins over a setting, and that over a variable. In an allocation the job has its limit.
void take_time_limit(config::RunConfig& config) {
  if (const auto time = slurm::take_time(config.slurm.extra)) config.slurm.time = *time;
  if (config.slurm.time.empty() && !slurm::inside_a_job()) config.slurm.time = slurm::time_of_shell();
}

config::RunConfig with_sbatch(config::RunConfig config, const std::vector<std::string>& sbatch) {
  const auto extra = slurm::joined(sbatch);
  config.slurm.extra.insert(config.slurm.extra.end(), extra.begin(), extra.end());
  take_container_options(config);
  take_time_limit(config);
  return config;
}

void check_bundle(const config::RunConfig& config) {
  if (config.slurm.bundle.empty()) return;
  if (!may_read(config.slurm.bundle)) refuse_reading(config.slurm.bundle);
  if (!files::exists_or_fail(config.slurm.bundle))
    throw Error(Exit::usage, "there is no bundle " + config.slurm.bundle, "slurm.bundle names it",
                "Make one with scripts/bundle.sh?");
}

bool are_sound(const RunFiles& files, preflight::Problems& problems) {
  const auto refused = config::refusals_of(files.config, files.model);
  for (const Error& error : refused) problems.add(error);
  return refused.empty();
}

/// What there is to say of the data themselves is said by preflight.
std::optional<std::int64_t> samples_of_epoch(const RunFiles& files) {
  try {
    if (config::promises_of(files.config.rank).trains_as_set)
      return preflight::samples_of_epoch(files.config, files.model);
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::optional<slurm::JobId> job_around() {
  return slurm::inside_a_job() ? std::optional(slurm::job_env().job) : std::nullopt;
}

/// The steps that train.epochs make; false: not one. A requeued job keeps those that it had.
bool take_steps(Look& look) {
  config::Train& train = look.files.config.train;
  look.samples_of_epoch = samples_of_epoch(look.files);
  if (train.epochs <= 0) return true;
  if (was_requeued(look.run, job_around()))
    if (const auto steps = steps_of_run(look.run, train.epochs); steps > 0) {
      train.steps = steps;
      return true;
    }
  if (look.samples_of_epoch)
    return look.problems.look(
        [&] { train.steps = preflight::steps_of_epochs(look.files.config, *look.samples_of_epoch); });
  if (train.steps == 0)
    look.problems.doubt("how many steps train.epochs make is not known: the data cannot be read here");
  return true;
}

/// Resolves the settings; false where they contradict each other.
bool settle(Look& look) {
  if (!are_sound(look.files, look.problems) || !take_steps(look)) return false;
  look.files.config = config::resolve(with_lanes_of(look.run, look.files.config), look.files.facts);
  look.files.config = with_copies_that_fit(look.files.config, look.files.model, look.files.facts);
  return are_sound(look.files, look.problems);
}

void plan(Look& look, const std::vector<std::string>& nodes, const std::optional<std::string>& batch_host) {
  const RunFiles& files = look.files;
  look.problems.look([&] {
    look.plan = make_plan(files.config, files.model, files.facts, nodes, batch_host);
    look.plan->samples_of_epoch = look.samples_of_epoch.value_or(0);
  });
}

/// The first setting that the run has otherwise, as a line of its file; "": none. Options of sbatch may
/// differ, but not the time, to which the notice in the script is fitted.
std::string other_setting(const Preparation& prepared) {
  const auto settings = [](config::RunConfig config) {
    auto& slurm = config.slurm;
    for (auto* option : {&slurm.partition, &slurm.account, &slurm.qos, &slurm.reservation, &slurm.constraint})
      option->clear();
    slurm.extra.clear();
    return config::to_toml(config);
  };
  const std::string of_run = settings(config::load(prepared.run.config()).config);
  const std::string asked = settings(prepared.files.config);
  const auto known = lines_of(of_run), lines = lines_of(asked);
  const auto [mine, its] = std::ranges::mismatch(lines, known);
  if (mine != lines.end()) return std::string(*mine);
  return its != known.end() ? fmt::format("it has {}", *its) : "";
}

}  // namespace

Look look_at(config::RunConfig config, const std::vector<std::string>& sbatch, const NodeChoice& choice) {
  Look out;
  RunFiles& files = out.files;
  preflight::Problems& problems = out.problems;
  files.config = with_sbatch(std::move(config), sbatch);
  problems.look(
      [&] { files.facts = choice.facts ? *choice.facts : config::load_cluster(files.config.cluster.file); });
  problems.look([&] { files.model = config::model_of(files.config); });
  problems.look([&] { out.run = run_dir_of(files.config); });
  problems.refuse();
  std::vector<std::string> nodes = choice.on;
  for (const std::string& node : choice.without) std::erase(nodes, node);
  const bool enough = problems.look([&] {
    const config::Cluster& asked = files.config.cluster;
    if (choice.on.empty() && !choice.batch_host)
      nodes = hypothetical_nodes(files.facts, asked.nodes, asked.spares, choice.without);
  });
  const bool settled = settle(out);
  if (settled && enough) plan(out, nodes, choice.batch_host);
  problems.look([&] { files.config = with_absolute_paths(files.config, out.run); });
  problems.look([&] { check_bundle(files.config); });
  problems.look([&] {
    if (auto doubt = check_time_limit(files.config); !doubt.empty()) problems.doubt(std::move(doubt));
  });
  problems.look([&] {
    for (auto& warning : check_image(files.config, out.run, this_program()))
      problems.doubt(std::move(warning));
  });
  preflight::look_at({files.config, files.model, files.facts, out.run, was_requeued(out.run, job_around()),
                      settled, out.plan ? out.plan->checkpoint_bytes : 0},
                     problems);
  return out;
}

Preparation prepare(config::RunConfig config, const std::vector<std::string>& sbatch,
                    const NodeChoice& choice) {
  Look look = look_at(std::move(config), sbatch, choice);
  slurm::Submission submission{look.run.script(), {}};
  if (!choice.facts) {  // else it is a local run, which nobody submits
    look.problems.look([&] {
      const auto job = batch_job(look.files.config, look.files.facts, look.run, this_program());
      submission.arguments = slurm::submit_arguments(job);
      look.files.script = slurm::script_text(job);
    });
  }
  look.problems.refuse();
  Preparation out{look.run, std::move(look.files), std::move(look.plan).value(), std::move(submission)};
  for (const std::string& doubt : look.problems.doubts()) out.plan.warnings.push_back(doubt);
  out.files.plan = to_json(plan_for_group(out.plan, out.files.config)).dump(2) + "\n";
  return out;
}

void check_cluster_file(const config::ClusterFacts& facts) {
  constexpr const char* minipod = "minipod";
  if (facts.name != minipod) return;
  std::string name;
  try {
    name = slurm::cluster_name(std::chrono::seconds(10));
  } catch (const Error& error) {
    return log::warn(
        "it is unknown whether the cluster file describes this cluster: it is the minipod's, as where "
        "cluster.file is not set, and SLURM does not say how it calls this one: {}",
        error.what());
  }
  if (name.empty() || name == minipod) return;
  throw Error(
      Exit::usage, "the cluster file does not describe this cluster",
      fmt::format("it is the minipod's, as where cluster.file is not set, and SLURM calls this cluster "
                  "'{}'",
                  name),
      "Write one with 'holdfast init -o FILE', and name it: '--set cluster.file=FILE', or for all jobs "
      "'export HOLDFAST_SET_CLUSTER__FILE=FILE'?");
}

Plan plan_for_group(Plan plan, const config::RunConfig& config) {
  const auto& own = config.rank.environment;
  for (auto& variable : plan.environment)
    if (std::ranges::find(own, variable) != own.end())
      variable = variable.substr(0, variable.find('=') + 1) + config::not_shown;
  plan.program = program_says(config::without_secrets(config));
  return plan;
}

void check_same_run(const Preparation& prepared) {
  const std::string other = other_setting(prepared);
  if (!other.empty())
    throw Error(Exit::usage,
                fmt::format("the job cannot wait for its turn in {}", prepared.run.path.string()),
                fmt::format("its settings are not those of the run, which a live job uses: {}", other),
                "Submit it when that job has ended, or leave the settings as they are?");
}

bool is_done(const Preparation& prepared, const slurm::JobEnv& env) {
  if (!env.in_batch_script() || !files::is_there(prepared.run.config())) return false;
  const auto owner = read_owner(prepared.run);
  if (!owner || !owner->job || *owner->job == env.job || !other_setting(prepared).empty()) return false;
  const RunState state = replay(prepared.run);
  if (!state.outcome || state.outcome->exit_code != 0) return false;
  log::info("the run {} is done since job {}: nothing is left for job {}", prepared.run.path.string(),
            *owner->job, env.job);
  return true;
}

void take_run_dir(const Preparation& prepared, slurm::JobId job, slurm::Cluster& cluster) {
  create_folders(prepared.run);
  const auto owner = read_owner(prepared.run);
  if (owner && owner->job == job) return write_run_files(prepared.run, prepared.files);
  RunDirClaim claim(prepared.run, cluster);
  // Again, now that the directory is claimed: another submit may have written there since.
  check_run_dir(prepared.run, prepared.files);
  write_run_files(prepared.run, prepared.files);
  claim.give_to(job);
}

}  // namespace holdfast::launcher
