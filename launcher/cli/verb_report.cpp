#include <filesystem>
#include <iostream>

#include "launcher/cli/run_facts.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/report/page.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/energy.hpp"
#include "slurm/find_run.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/printable.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::chrono::seconds energy_limit{5};  // of each of two questions

/// Of a run that has not ended by its record, as `status` has it; "": SLURM says nothing of its job.
std::string what_goes_on(const RunDir& run, const RunState& state, slurm::ClusterCli& cluster) {
  StatusFacts facts;
  take_settings(config::read_settings(run), facts);
  facts.state = state;
  facts.job = job_facts(run, cluster);
  return facts.job->id && facts.job->unanswered.empty() ? headline(facts) : "";
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  struct ReportOptions {
    std::string run, file;
    bool markdown = false;
  };
  auto* verb = app.add_subcommand(
      "report", "Print a report of a run as one HTML file: result, plots, time, failures, settings");
  auto options = std::make_shared<ReportOptions>();
  verb->add_option("RUN", options->run, "The run directory, its name in runs/, or the job's id")->required();
  verb->add_option("-o,--output", options->file, "Write it to this file instead of standard output");
  verb->add_flag("--markdown", options->markdown, "Markdown, without plots");
  verb->callback([options, &exit_code] {
    if (!options->file.empty()) {
      const std::filesystem::path folder = std::filesystem::absolute(options->file).parent_path();
      if (!std::filesystem::is_directory(folder))
        throw Error(Exit::usage, "cannot write " + options->file, "there is no folder " + folder.string(),
                    "Make it, or name another?");
    }
    slurm::ClusterCli cluster;
    const RunDir run = find_run(options->run, cluster);
    auto facts = report::read_facts(run);
    if (typed<std::string>(facts.result, "status") == "running")
      facts.now = what_goes_on(run, facts.state, cluster);
    if (const auto jobs = report::jobs_of(facts.events); !jobs.empty())
      facts.energy = slurm::energy(jobs, facts.events.front().envelope.unix,
                                   facts.events.back().envelope.unix, energy_limit);
    const auto page = report::page_of(facts);
    const std::string text = printable(options->markdown ? report::markdown(page) : report::html(page));
    if (options->file.empty())
      std::cout << text;
    else
      files::replace_atomically(options->file, text, 0644);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
