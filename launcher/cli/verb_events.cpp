#include <iostream>

#include "launcher/cli/verbs.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"

namespace holdfast::launcher {

void add_events(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("events", "Print what was decided in a run, one JSON object a line");
  auto run = std::make_shared<std::string>();
  verb->add_option("RUN", *run, "The run directory, its name in runs/, or the job's id")->required();
  verb->callback([run, &exit_code] {
    slurm::ClusterCli cluster;
    for (const auto& entry : read_events(find_run(*run, cluster))) std::cout << line_of(entry) << '\n';
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
