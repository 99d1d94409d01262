#pragma once
// The SLURM_* variables of this process, as a struct.
//
// The variables are a snapshot from the moment the process (in a batch script: the job) was started. When a
// node is lost and cut from the allocation they do not change, so `nodes` may name nodes that the job no
// longer has: Cluster::job() gives the present ones.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::slurm {

/// SLURM's number of a job, always > 0; each task of a job array has one of its own.
using JobId = std::int64_t;

/// How SLURM's tools call one job. The number of an array's last task is the array's, too, and stands for all
/// of its tasks where a tool acts on it: a task is called "15_2".
class JobName {
 public:
  JobName(JobId id) : text_(std::to_string(id)) {}  // NOLINT(google-explicit-constructor)
  JobName(JobId array, std::int64_t task) : text_(std::to_string(array) + "_" + std::to_string(task)) {}
  const std::string& text() const { return text_; }
  bool operator==(const JobName&) const = default;

 private:
  std::string text_;
};

struct JobEnv {
  JobId job = 0;
  std::optional<JobName> task;       ///< its name as a task of a job array
  int components = 1;                ///< more than one: the job is heterogeneous
  std::optional<std::int64_t> step;  ///< absent in a batch script; the batch and extern steps count as absent
  std::string job_name;
  std::vector<std::string>
      nodes;         ///< of the job when it started, in SLURM's order; the first is the batch host
  std::string node;  ///< SLURM's name of this node; empty when SLURM does not set it (salloc on a login node)
  bool interactive =
      false;         ///< the shell of `salloc` on the first node (LaunchParameters=use_interactive_step)
  int restarts = 0;  ///< how often the job was requeued
  std::filesystem::path submit_dir;  ///< where it was submitted from
  std::optional<double> end_time;    ///< Unix seconds; many versions do not set it: use Cluster::job()
  int procid = 0, ntasks = 1;        ///< of this step (bare srun); 0 and 1 outside steps
  int localid = 0;                   ///< task index on this node
  /// GPUs of this step on this node, by numbers that are unique on the node whatever the step may see; none:
  /// SLURM does not tell them, or they are slices (MIG), which it numbers in its own way.
  std::vector<std::string> gpus;

  /// Is this the batch script, or a child of it outside any step? It runs on the first of `nodes`.
  bool in_batch_script() const {
    return !step && !interactive && !node.empty() && !nodes.empty() && node == nodes.front();
  }
};

/// Is this process part of a SLURM job (batch script, step, or a shell in an allocation)?
bool inside_a_job();

/// Throws Error (usage) outside a job, or when a variable is malformed (the message names it).
JobEnv job_env();

}  // namespace holdfast::slurm
