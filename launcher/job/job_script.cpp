#include "launcher/job/job_script.hpp"

#include <fmt/format.h>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {

std::string check_time_limit(const config::RunConfig& config) {
  const int drain_s = config.checkpoint.drain_s;
  const auto limit = slurm::limit_in(config.slurm.time);
  if (!limit) return "";
  if (const int shortest = slurm::shortest_limit(drain_s); *limit < shortest)
    throw Error(Exit::usage, fmt::format("a time limit of {} s leaves no time to train", *limit),
                fmt::format("the last checkpoint may take {} s (checkpoint.drain_s), and SLURM may send its "
                            "signal {} s early",
                            drain_s, slurm::early_s),
                fmt::format("Ask for -t {} or more, or lower checkpoint.drain_s?", (shortest + 59) / 60));
  const int notice = slurm::notice_for(drain_s, limit), usual = slurm::notice_for(drain_s, std::nullopt);
  if (notice == usual) return "";
  return fmt::format(
      "the time limit is short: SLURM tells the run to save {} to {} s before it, not {} to {} s", notice,
      notice + slurm::early_s, usual, usual + slurm::early_s);
}

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
  job.notice_s = slurm::notice_for(config.checkpoint.drain_s, slurm::limit_in(config.slurm.time));
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
