#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <memory>

#include "launcher/cli/job_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/job/container.hpp"
#include "launcher/job/preparation.hpp"
#include "launcher/job/run_owner.hpp"
#include "slurm/batch_script.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/commands.hpp"
#include "slurm/environment.hpp"
#include "slurm/reasons.hpp"
#include "slurm/replies.hpp"
#include "slurm/site.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {

struct SubmitOptions {
  JobOptions job;
  std::string on, without;          ///< host lists
  std::vector<std::string> sbatch;  ///< after "--"
  bool dry_run = false, parsable = false;
};

Preparation prepare(SubmitOptions options) {
  auto words = options.job.flags_of(options.sbatch);
  if (!options.on.empty()) words.push_back("--nodelist=" + options.on);
  if (!options.without.empty()) words.push_back("--exclude=" + options.without);
  return launcher::prepare(options.job.load().config, words);
}

/// Why the job can never start; "": nothing says so. SLURM itself may give that reason only a while later.
std::string why_it_never_starts(const Preparation& prepared, slurm::Cluster& cluster, slurm::JobId id) {
  constexpr std::chrono::seconds limit{3};
  const auto& asked = prepared.files.config.cluster;
  const std::string why =
      slurm::lack_of_nodes(slurm::partitions(limit), slurm::asked_partitions(prepared.submission.arguments),
                           asked.nodes + asked.spares);
  if (!why.empty()) return why;
  const auto job = cluster.job(id, limit);
  if (!job || !slurm::never_starts(job->reason)) return "";
  return fmt::format("{} ({})", slurm::reason_in_words(job->reason), job->reason);
}

/// SLURM accepts jobs that can never start and lets them wait for ever.
void warn_if_never_starts(const Preparation& prepared, slurm::Cluster& cluster, slurm::JobId id) {
  try {
    if (const std::string why = why_it_never_starts(prepared, cluster, id); !why.empty())
      log::warn("job {} may never start: {}", id, why);
  } catch (const Error&) {  // the job is submitted; its reason can be asked for later
  }
}

constexpr std::chrono::seconds submit_limit{60};

/// A job that begins when others of its run have ended. Nothing is written: they use the run directory.
slurm::JobId submit_behind(const Preparation& prepared, slurm::Cluster& cluster) {
  check_same_run(prepared);
  return cluster.submit(prepared.submission, submit_limit);
}

bool waits_for_its_turn(const Preparation& prepared, slurm::Cluster& cluster) {
  if (!files::is_there(prepared.run.config())) return false;
  const auto live = live_jobs(prepared.run, cluster);
  return !live.empty() && slurm::waits_for_one_of(prepared.submission.arguments, live);
}

slurm::JobId submit(const Preparation& prepared, slurm::Cluster& cluster) {
  // First, so that nothing is changed without a controller, and the error comes at once (sbatch takes 9 s).
  cluster.ping();
  if (const std::string doubt = slurm::version_warning(cluster.version()); !doubt.empty())
    log::warn("{}", doubt);
  check_cluster_file(prepared.files.facts);
  check_runtime(prepared.files.config.container, false);
  if (waits_for_its_turn(prepared, cluster)) return submit_behind(prepared, cluster);
  create_folders(prepared.run);
  RunDirClaim claim(prepared.run, cluster);
  // Again, now that the directory is claimed: another submit may have written there since.
  check_run_dir(prepared.run, prepared.files);
  write_run_files(prepared.run, prepared.files);
  claim.check();
  try {
    const slurm::JobId id = cluster.submit(prepared.submission, submit_limit);
    claim.give_to(id);
    return id;
  } catch (const slurm::OutcomeUnknown&) {
    claim.keep();
    throw;
  }
}

void print_dry_run(const Preparation& prepared) {
  std::cout << prepared.files.script << "\n# " << slurm::shown(slurm::submit_argv(prepared.submission))
            << "\n";
  if (const std::string left_out = slurm::left_out_for_sbatch(); !left_out.empty()) log::warn("{}", left_out);
}

void print_summary(const Preparation& prepared, slurm::JobId id) {
  const auto& config = prepared.files.config;
  const std::string run = prepared.run.path.string();
  std::cout << fmt::format("submitted job {}: {}\n", id, slurm::shown({config.run.name}));
  std::cout << fmt::format("  nodes    {} active, {} spare{} on {}; {} ranks\n", config.cluster.nodes,
                           config.cluster.spares, config.cluster.spares == 1 ? "" : "s",
                           prepared.plan.cluster, prepared.plan.world());
  std::cout << fmt::format("  run dir  {}\n", run);
  std::cout << fmt::format("  follow   {}\n", slurm::shown({"holdfast", "status", run}));
}

void run_submit(const SubmitOptions& options) {
  const Preparation prepared = prepare(options);
  for (const auto& warning : prepared.plan.warnings) log::warn("{}", warning);
  if (options.dry_run) return print_dry_run(prepared);
  slurm::ClusterCli cluster;
  const slurm::JobId id = submit(prepared, cluster);
  if (options.parsable)
    std::cout << fmt::format("{}\n", id);
  else
    print_summary(prepared, id);
  std::fflush(stdout);
  warn_if_never_starts(prepared, cluster, id);
}

}  // namespace

void add_submit(CLI::App& app, int&) {
  auto* verb = app.add_subcommand("submit", "Prepare the run directory and submit the job");
  const auto options = std::make_shared<SubmitOptions>();
  options->job.add_to(*verb);
  verb->add_option("-w,--nodelist", options->on, "Nodes that the job must have, as with sbatch")
      ->type_name("HOSTLIST");
  verb->add_option("-x,--exclude", options->without, "Nodes that it must not have, as with sbatch")
      ->type_name("HOSTLIST");
  verb->add_flag("--dry-run", options->dry_run,
                 "Print the batch script and the command that would submit it; change nothing");
  verb->add_flag("--parsable", options->parsable, "Print only the job id");
  verb->add_option("flags", options->sbatch, "After '--': further flags, passed to SLURM")
      ->type_name("-- FLAG");
  verb->callback([options] { run_submit(*options); });
}

}  // namespace holdfast::launcher
