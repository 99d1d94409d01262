#include "launcher/job/preparation.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/job/container.hpp"
#include "launcher/job/job_script.hpp"
#include "launcher/job/run_history.hpp"
#include "launcher/job/run_owner.hpp"
#include "launcher/plan/topology.hpp"
#include "slurm/job_env.hpp"
#include "src/base/error.hpp"
#include "src/config/adapters.hpp"
#include "src/config/load.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {

Preparation prepare(config::RunConfig config, const std::vector<std::string>& sbatch) {
  Preparation out;
  const auto extra = slurm::joined(sbatch);
  config.slurm.extra.insert(config.slurm.extra.end(), extra.begin(), extra.end());
  take_container_options(config);

  out.files.facts = config::load_cluster(config.cluster.file);
  out.files.model = config::model_of(config);
  config::check(config, out.files.model);
  out.run = run_dir_of(config);
  config = config::resolve(with_lanes_of(out.run, std::move(config)), out.files.facts);
  config::check(config, out.files.model);
  config = with_absolute_paths(std::move(config), out.run);

  if (!config.slurm.bundle.empty() && !std::filesystem::exists(config.slurm.bundle))
    throw Error(Exit::usage, "there is no bundle " + config.slurm.bundle, "slurm.bundle names it",
                "Make one with scripts/bundle.sh?");

  const auto nodes = hypothetical_nodes(out.files.facts, config.cluster.nodes, config.cluster.spares);
  out.plan = make_plan(config, out.files.model, out.files.facts, nodes, std::nullopt);
  for (auto& warning : check_image(config, out.run, this_program()))
    out.plan.warnings.push_back(std::move(warning));
  const auto job = batch_job(config, out.files.facts, out.run, this_program());
  out.submission = {out.run.script(), slurm::submit_arguments(job)};
  out.files.plan = to_json(plan_for_group(out.plan, config.rank)).dump(2) + "\n";
  out.files.script = slurm::script_text(job);
  out.files.config = std::move(config);
  check_run_dir(out.run, out.files,
                slurm::inside_a_job() ? std::optional(slurm::job_env().job) : std::nullopt);
  return out;
}

Plan plan_for_group(Plan plan, const config::Rank& rank) {
  for (auto& variable : plan.environment)
    if (std::ranges::find(rank.environment, variable) != rank.environment.end())
      variable = variable.substr(0, variable.find('=') + 1) + config::not_shown;
  return plan;
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
