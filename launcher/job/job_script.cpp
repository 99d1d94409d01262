#include "launcher/job/job_script.hpp"

namespace holdfast::launcher {

slurm::BatchJob batch_job(const config::RunConfig& config, const config::ClusterFacts& facts,
                          const RunDir& run, const std::filesystem::path& holdfast) {
  slurm::check_path("the run directory (run.dir)", run.path);
  if (config.slurm.bundle.empty())
    slurm::check_path("the path of holdfast itself", holdfast);
  else
    slurm::check_path("the bundle (slurm.bundle)", config.slurm.bundle);
  slurm::BatchJob job;
  job.nodes = config.cluster.nodes + config.cluster.spares;
  job.gpus_per_node = facts.gpu == "none" ? 0 : facts.gpus_per_node;
  job.notice_s = slurm::notice_for(config.checkpoint.drain_s);
  job.holdfast = holdfast;
  job.bundle = config.slurm.bundle;
  job.run_dir = run.path;
  job.logs = run.logs();
  job.name = config.run.name;
  job.partition = config.slurm.partition;
  job.account = config.slurm.account;
  job.qos = config.slurm.qos;
  job.reservation = config.slurm.reservation;
  job.time = config.slurm.time;
  job.constraint = config.slurm.constraint;
  job.extra = config.slurm.extra;
  return job;
}

}  // namespace holdfast::launcher
