#include <fmt/format.h>

#include <chrono>
#include <iostream>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/job/data_jobs.hpp"
#include "slurm/batch_script.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/commands.hpp"
#include "src/base/error.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

constexpr const char* help_text =
    R"(Run 'holdfast data prepare' as jobs: arrays that process the parts, and single jobs between them.
The bytes of the result are those of a run in one process. Scripts and logs are in OUTPUT.work/jobs.
Usage: holdfast data submit --tasks N [OPTIONS of 'data prepare'] [--dry-run] [--parsable] [-- FLAGS]

Options:
  --tasks N                   Tasks of each array, at most one for each part
  --dry-run                   Print the scripts and the commands that would submit them; change nothing
  --parsable                  Print only the id of the last job
  -- FLAG ...                 After '--': further flags, passed to SLURM (-p, -A, -t, -c, --mem, ...)

The options of 'data prepare' are in 'holdfast data prepare --help'.
)";

/// Asks holdfast-tool; throws its error and exit code when it refuses.
DataPlan plan_of(const DataSubmit& options, const std::filesystem::path& tool) {
  Command command;
  command.argv = {tool.string(), "data", "prepare"};
  command.argv.insert(command.argv.end(), options.prepare.begin(), options.prepare.end());
  command.argv.push_back("--plan-json");
  const Finished done = run(command, std::chrono::minutes(30));
  if (done.status == 0) return read_data_plan(done.out);
  constexpr std::string_view prefix = "holdfast: ";
  std::string said(first_line(done.err));
  if (said.starts_with(prefix)) said.erase(0, prefix.size());
  const bool usage = done.status == static_cast<int>(Exit::usage);
  throw Error(usage ? Exit::usage : Exit::runtime,
              said.empty() ? fmt::format("{} ended with {}", tool.string(), done.status) : said);
}

}  // namespace

int submit_data(const std::vector<std::string>& typed) {
  const DataSubmit options = read_data_submit(typed);
  if (options.help) {
    std::cout << help_text;
    return 0;
  }
  const auto tool = find_program("holdfast-tool");
  const DataPlan plan = plan_of(options, tool);
  const auto jobs = data_jobs(plan, options, tool, std::filesystem::current_path());
  if (options.dry_run) {
    for (const slurm::StageJob& job : jobs)
      std::cout << (job.name == jobs.front().name ? "" : "# When that has succeeded:\n\n")
                << slurm::stage_script(job) << "# "
                << slurm::shown(slurm::submit_argv({script_of(plan, job), slurm::stage_arguments(job, {})}))
                << "\n\n";
    return 0;
  }
  slurm::ClusterCli cluster;
  const auto ids = submit_data_jobs(plan, jobs, cluster);
  if (options.parsable) {
    std::cout << fmt::format("{}\n", ids.back());
    return 0;
  }
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::cout << fmt::format("submitted job {}: {}{}\n", ids[i], jobs[i].name,
                             jobs[i].tasks > 0 ? fmt::format(", {} tasks", jobs[i].tasks) : "");
  std::cout << fmt::format("  {} parts; scripts and logs in {}\n", plan.parts,
                           data_jobs_folder(plan).string());
  return 0;
}

}  // namespace holdfast::launcher
