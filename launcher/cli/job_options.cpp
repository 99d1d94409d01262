#include "launcher/cli/job_options.hpp"

namespace holdfast::launcher {

void JobOptions::add_to(CLI::App& verb) {
  verb.add_option("job", file, "Job file, or the name of one in configs/jobs")
      ->required()
      ->type_name("JOB.toml");
  verb.add_option("--set", sets, "A setting, for example train.steps=500; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb.add_option("-N,--nodes", nodes, "Active nodes (cluster.nodes)")->type_name("N");
  verb.add_option("--spares", spares, "Spare nodes (cluster.spares)")->type_name("N");
  verb.add_option("--resume", resume, "auto, none or a checkpoint (run.resume)")->type_name("FROM");
  verb.add_option("-p,--partition", partition, "As with sbatch (slurm.partition)")->type_name("NAME");
  verb.add_option("-t,--time", time, "As with sbatch (slurm.time)")->type_name("TIME");
}

bool JobOptions::any_set() const { return !all_sets().empty(); }

config::Loaded JobOptions::load() const { return config::load(file, all_sets()); }

std::vector<std::string> JobOptions::all_sets() const {
  auto all = sets;
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) all.push_back(std::string(key) + "=" + value);
  };
  add("cluster.nodes", nodes), add("cluster.spares", spares), add("run.resume", resume);
  add("slurm.partition", partition), add("slurm.time", time);
  return all;
}

}  // namespace holdfast::launcher
