#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>

#include "launcher/cli/run_facts.hpp"
#include "launcher/cli/run_list.hpp"
#include "launcher/cli/verbs.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/tools.hpp"
#include "src/base/access.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

/// The run directories that are `folder`, or lie in it.
void add_runs(const fs::path& folder, std::set<fs::path>& runs) {
  if (!may_read(folder)) refuse_reading(folder);
  const auto add = [&](const fs::path& path) {
    const files::Look look = files::look_at(RunDir{path}.config());
    if (look.presence == files::Presence::there) runs.insert(fs::absolute(path).lexically_normal());
    if (look.presence == files::Presence::unknown)
      log::warn("it is not known whether {} is a run: {}", path.string(), std::strerror(look.error));
  };
  add(folder);
  for (const std::string& name : files::list_or_fail(folder)) add(folder / name);
}

/// Nothing: SLURM cannot be asked.
std::optional<std::vector<slurm::OwnJob>> own_jobs() {
  try {
    slurm::find_tools();
    return slurm::ClusterCli().own_jobs();
  } catch (const Error& error) {
    log::warn("{}", error.what());
    return std::nullopt;
  }
}

std::optional<StatusFacts> read(const RunDir& run) {
  try {
    return facts_of(run);
  } catch (const Error& error) {
    log::warn("{}: {}", run.path.string(), error.what());
    return std::nullopt;
  }
}

/// Nothing: it is not known.
std::optional<JobFacts> job_of(const RunDir& run, const std::optional<slurm::OwnJob>& job,
                               bool slurm_answers) {
  slurm::ClusterCli cluster;
  if (const auto owner = may_read(run.owner()) ? read_owner(run) : std::nullopt; owner && owner->local)
    return job_facts(run, owner, cluster);
  return slurm_answers ? std::optional(job_facts(std::nullopt, job)) : std::nullopt;
}

std::vector<ListedRun> list(const std::vector<std::string>& folders) {
  std::set<fs::path> paths;
  for (const auto& folder : folders) add_runs(folder, paths);
  const auto jobs = own_jobs();
  for (const auto& job : jobs.value_or(std::vector<slurm::OwnJob>()))
    if (const RunDir run{job.script.parent_path()};
        job.script == run.script() && files::is_there(run.config()))
      paths.insert(run.path);
  std::vector<ListedRun> out;
  for (const auto& path : paths) {
    ListedRun run{path, read({path}), std::nullopt};
    for (const auto& job : jobs.value_or(std::vector<slurm::OwnJob>()))
      if (job.script == RunDir{path}.script() && (!run.job || job.state != slurm::JobState::pending))
        run.job = job;  // not one that waits for its turn
    if (run.facts) run.facts->job = job_of(RunDir{path}, run.job, jobs.has_value());
    out.push_back(std::move(run));
  }
  return out;
}

}  // namespace

void add_ls(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("ls", "List runs: those of your jobs, and those in folders");
  const auto folders = std::make_shared<std::vector<std::string>>();
  const auto as_json = std::make_shared<bool>(false);
  verb->add_option("FOLDER", *folders, "Where run directories lie (without it: here, and in runs/)")
      ->type_name("FOLDER");
  verb->add_flag("--json", *as_json, "Print JSON");
  verb->callback([folders, as_json, &exit_code] {
    for (const auto& folder : *folders)
      if (may_read(folder) && !(files::exists_or_fail(folder) && fs::is_directory(folder)))
        throw Error(Exit::usage, folder + " is not a folder", "", "Give one in which run directories lie?");
    if (folders->empty()) *folders = {".", std::string(runs_folder)};
    const auto runs = list(*folders);
    if (*as_json)
      std::cout << json_text(list_json(runs), 2) << "\n";
    else if (runs.empty())
      std::cout << fmt::format("there is no run in {}, and none among your jobs in the queue\n",
                               fmt::join(*folders, ", "));
    else
      std::cout << list_text(runs);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
