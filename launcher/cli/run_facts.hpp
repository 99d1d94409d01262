#pragma once
// What a run directory says of its run.
#include "launcher/job/run_owner.hpp"
#include "launcher/supervise/status_view.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// Throws Error when it cannot be read.
StatusFacts facts_of(const RunDir& run);

/// `job`: what SLURM says of the run's job; absent: it knows none. `id`: of the job that owns the run.
JobFacts job_facts(std::optional<slurm::JobId> id, const std::optional<slurm::OwnJob>& job);
/// Asks SLURM, once, about the job that owns the run; of a local run, looks at its lock. Throws nothing when
/// SLURM does not answer.
JobFacts job_facts(const RunDir& run, const std::optional<Owner>& owner, slurm::ClusterCli& cluster);
/// The same for the run's present owner.
JobFacts job_facts(const RunDir& run, slurm::ClusterCli& cluster);

}  // namespace holdfast::launcher
