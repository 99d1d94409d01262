#include "launcher/job/data_jobs.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

int tasks_of(const std::string& text) {
  int tasks = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), tasks);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || tasks < 1)
    throw Error(Exit::usage, "--tasks cannot be '" + text + "'",
                "it is the number of tasks of an array, at least 1");
  return tasks;
}

/// Do the arguments set the number of workers? Else the program is told how many CPUs the job has.
bool names_workers(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    return word == "--workers" || word.starts_with("--workers=");
  });
}

}  // namespace

DataPlan read_data_plan(std::string_view json) {
  try {
    const auto all = json_from(json);
    DataPlan plan;
    plan.work = all.at("work").get<std::string>();
    plan.parts = all.at("parts").get<int>();
    for (const auto& stage : all.at("stages"))
      plan.stages.push_back({stage.at("name").get<std::string>(), stage.at("by_parts").get<bool>()});
    return plan;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Exit::runtime, "holdfast-tool's plan cannot be read", error.what(),
                "Are holdfast and holdfast-tool of one version?");
  }
}

DataSubmit read_data_submit(const std::vector<std::string>& typed) {
  DataSubmit options;
  for (std::size_t i = 0; i < typed.size(); ++i) {
    const std::string& word = typed[i];
    if (word == "--") {
      options.sbatch.assign(typed.begin() + static_cast<std::ptrdiff_t>(i) + 1, typed.end());
      break;
    }
    if (word == "--tasks" && i + 1 < typed.size())
      options.tasks = tasks_of(typed[++i]);
    else if (word.starts_with("--tasks"))
      options.tasks = tasks_of(word.substr(std::min(word.size(), std::string("--tasks=").size())));
    else if (word == "--dry-run")
      options.dry_run = true;
    else if (word == "--parsable")
      options.parsable = true;
    else if (word == "-h" || word == "--help")
      options.help = true;
    else
      options.prepare.push_back(word);
  }
  if (options.tasks == 0 && !options.help)
    throw Error(Exit::usage, "--tasks is not set", "the parts are divided among that number of tasks",
                "Add --tasks 8?");
  return options;
}

fs::path data_jobs_folder(const DataPlan& plan) { return plan.work / "jobs"; }

fs::path script_of(const DataPlan& plan, const slurm::StageJob& job) {
  return data_jobs_folder(plan) / (job.name + ".sbatch");
}

std::vector<slurm::StageJob> data_jobs(const DataPlan& plan, const DataSubmit& options, const fs::path& tool,
                                       const fs::path& folder) {
  std::vector<slurm::StageJob> jobs;
  for (const DataStage& stage : plan.stages) {
    slurm::StageJob job;
    job.name = stage.name;
    job.tasks = stage.by_parts ? std::min(options.tasks, std::max(plan.parts, 1)) : 0;
    job.command = {tool.string(), "data", "prepare"};
    job.command.insert(job.command.end(), options.prepare.begin(), options.prepare.end());
    job.add_workers = stage.by_parts && !names_workers(options.prepare);
    job.folder = folder;
    job.logs = data_jobs_folder(plan);
    job.extra = options.sbatch;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::vector<slurm::JobId> submit_data_jobs(const DataPlan& plan, const std::vector<slurm::StageJob>& jobs,
                                           slurm::Cluster& cluster) {
  cluster.ping();
  std::error_code error;
  fs::create_directories(data_jobs_folder(plan), error);
  if (error) throw Error(Exit::usage, "cannot make " + data_jobs_folder(plan).string(), error.message());
  std::vector<slurm::JobId> ids;
  try {
    for (const slurm::StageJob& job : jobs) {
      files::replace_atomically(script_of(plan, job), slurm::stage_script(job), 0644);
      const auto after = ids.empty() ? std::nullopt : std::optional(ids.back());
      ids.push_back(cluster.submit({script_of(plan, job), slurm::stage_arguments(job, after)}));
    }
  } catch (const Error&) {
    for (const slurm::JobId id : ids) try {
        cluster.cancel(id);
      } catch (const Error& left) {
        log::warn("job {} is still there: {}", id, left.what());
      }
    throw;
  }
  return ids;
}

}  // namespace holdfast::launcher
