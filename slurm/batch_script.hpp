#pragma once
// The batch job that Holdfast submits: the text of its script and sbatch's arguments. Pure.
//
// The script contains no text of the user but two paths in single quotes. The user's choices (job name,
// partition, extra flags) are passed as arguments, which no shell reads.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/job_env.hpp"

namespace holdfast::slurm {

struct BatchJob {
  int nodes = 1;          ///< active nodes and spares
  int gpus_per_node = 0;  ///< requested from SLURM; 0: none
  int notice_s = 120;     ///< SIGUSR1 comes this long before the time limit; see notice_for()
  std::filesystem::path
      holdfast;  ///< absolute, on a file system that every node mounts; not used with a bundle
  std::filesystem::path
      bundle;  ///< archive made by scripts/bundle.sh that the job brings to its nodes; empty: none
  std::filesystem::path run_dir;  ///< absolute; see check_path
  std::filesystem::path
      logs;          ///< folder in the run directory for the script's own output; must exist at submission
  std::string name;  ///< of the job; any text without NUL
  std::string partition, account, qos, reservation, time, constraint;  ///< empty: not given
  std::vector<std::string> extra;  ///< further sbatch arguments; see joined
};

/// SLURM may send its signal so much earlier than it was asked to.
constexpr int early_s = 60;
/// Seconds before the time limit at which SLURM must signal a run whose last checkpoint may take `drain_s`: a
/// third of a short limit, if that is enough for the checkpoint. `limit_s`: nothing when it is not known, or
/// there is none. Pure.
int notice_for(int drain_s, std::optional<int> limit_s);
/// The shortest time limit that leaves some time to train between the start of a job and the signal. Pure.
int shortest_limit(int drain_s);
/// A time limit as sbatch takes it ("30", "1:30:00", "2-12"), in seconds, rounded up to minutes as SLURM
/// does. Nothing: it is none, or is no time. Pure.
std::optional<int> limit_in(std::string_view time);
/// Takes --time out of sbatch's arguments (as joined() returns them), where the last one counts; nothing:
/// there is none.
std::optional<std::string> take_time(std::vector<std::string>& arguments);

/// The script. The loop in it runs `holdfast run` again when a signal ended it, requeues the job on exit code
/// 75 and ends the job on every other code.
std::string script_text(const BatchJob& job);
/// The command of a step, as it is. If its program lies where the script has unpacked a bundle, the step
/// first makes sure that this folder is the user's own on its node, too, and ends with 4 (unhealthy) and a
/// reason if not.
std::vector<std::string> step_from_place(std::vector<std::string> command);
/// sbatch's arguments, without the script.
std::vector<std::string> submit_arguments(const BatchJob& job);

/// Do sbatch's arguments (as joined() returns them) let a job begin only when one of these has ended?
/// "--dependency=afterany:17" and the like, or "singleton", which the jobs of one name wait by. Pure.
bool waits_for_one_of(const std::vector<std::string>& arguments, const std::vector<JobId>& jobs);

/// Throws Error (usage) for a path that SLURM cannot carry: not absolute, a control character, or a backslash
/// (sbatch then reads no replacement in an --output path and drops the backslash).
void check_path(const std::string& what, const std::filesystem::path& path);

/// The arguments that a user writes after "--", each option joined with its value ("--exclude", "dgx003" ->
/// "--exclude=dgx003"), so that sbatch takes no word for the script. Throws Error (usage) on a word that
/// belongs to no option, and on options that Holdfast sets itself or that conflict with it (--nodes,
/// --output, --array, --wrap, ...).
std::vector<std::string> joined(const std::vector<std::string>& typed);

/// 'text' in single quotes for a POSIX shell, with any content.
std::string single_quoted(std::string_view text);
/// A command line to read and to paste: words in quotes where necessary, $'...' for control characters.
std::string shown(const std::vector<std::string>& argv);

}  // namespace holdfast::slurm
