#pragma once
// Reads the replies of SLURM's tools into plain data: pure, tested with captured samples
// (tests/slurm/captured). The formats are those of commands.hpp.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/cluster.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {

/// "slurm-wlm 22.05.8" -> "22.05.8"; "" when there is no version in it.
std::string read_version(std::string_view out);
/// Why this version may not do, for a warning; "" when it is one that Holdfast is tested with or expects to
/// work.
std::string version_warning(std::string_view version);

/// Empty: the job has no comment.
std::string read_comment(std::string_view out);

/// True of releases that requeue a job which ends after it was told that it is preempted: 24.05 and newer.
bool requeues_preempted_jobs(std::string_view version);
/// The reply of preemption_argv(): a time, or "N/A".
bool read_preempted(std::string_view out);

/// "17" or "17;cluster"; Error (runtime) on anything else.
JobId read_submitted(std::string_view out);
/// This job; the reply may have all tasks of an array whose number it is. Nothing when it is not there; Error
/// (runtime) on a reply that cannot be read.
std::optional<Job> read_job(std::string_view out, JobId id);
/// How the tools call the job of this number, by its line of the reply to task_argv(). "17" where it is not
/// there, or stands for several tasks that wait.
JobName read_task(std::string_view out, JobId id);
/// The reverse: the number of the job that is called so ("15_2").
std::optional<JobId> read_number(std::string_view out, std::string_view name);
/// Ids of unfinished jobs that were submitted with `script`, in SLURM's order.
std::vector<JobId> read_jobs_of_script(std::string_view out, const std::string& script);
/// The script that this unfinished job was submitted with.
std::optional<std::string> read_script_of_job(std::string_view out, JobId id);
/// As read_job().
std::optional<OwnJob> read_queued_job(std::string_view out, JobId id);
/// Live jobs of this user; lines that cannot be read are left out.
std::vector<OwnJob> read_own_jobs(std::string_view out);
/// PIDs, the first column of a table with a heading.
std::set<int> read_processes(std::string_view out);
/// Those steps of a job that have this name, as SLURM numbers them: "17.3".
std::vector<std::string> read_steps_named(std::string_view out, std::string_view name);
/// The constraints of a job.
struct JobConstraints {
  std::vector<std::string> partitions;  ///< a running job's: the one that it runs in
  std::vector<std::string> excluded;    ///< nodes
};
/// Nothing on an empty reply; Error (runtime) on one that cannot be read.
std::optional<JobConstraints> read_job_constraints(std::string_view out);
/// GPUs of a job on each of its nodes, of the lines "     Nodes=dgx[001-002] CPU_IDs=0-15 Mem=...
/// GRES=gpu:8(IDX:0-7)" of its details.
std::map<std::string, int> read_gpus(std::string_view out, JobId id);
/// In SLURM's order, each node once.
std::vector<Node> read_nodes(std::string_view out);

/// The state of a job from SLURM's text. An unknown text counts as running: such a job may be alive.
JobState job_state(std::string_view word);
/// GPUs in a generic resource list such as "gpu:h100:8(S:0-1),nic:1".
int gpus_in(std::string_view gres);

/// The exit code that a tool's error text leads to: transient, usage, impossible or runtime.
Exit kind_of_failure(std::string_view err);
/// True when the request was sent and no answer came: it may have been executed (seen: sbatch gave up, but
/// the job ran).
bool says_no_answer(std::string_view err);
bool says_unknown_job(std::string_view err);
bool says_already_pending(std::string_view err);
/// The tool's error message in one line, without its name and "error:"; the last line says most.
std::string complaint(std::string_view err);

}  // namespace holdfast::slurm
