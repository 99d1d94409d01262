#pragma once
// Fencing on a node: processes of older attempts are found, whoever started them. All throw Error where
// this process has no file descriptor or memory left to look.
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/leftovers.hpp"
#include "launcher/agent/ranks/speaker.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// The attempt, younger than all others, of interpreters that wait for a rank (rank.warm).
constexpr int waiting_attempt = 2147483646;

struct RunProcess {
  int pid = 0, attempt = 0;
  int rank = -1;               ///< the rank that it, or a parent, belongs to; -1: the PMIx server
  bool leads_session = false;  ///< an agent has started it
  std::string name;            ///< as the kernel shows it: at most 15 characters
};

/// Live processes of this user but this one, from /proc: those that carry this run's HOLDFAST_RUN_DIR,
/// HOLDFAST_NODE and an attempt, and all that they have started, whatever its environment is. What an
/// interpreter started while it waited belongs to the rank that it has become, and to attempt 0, older than
/// any, once it has ended. `guardian`: of this process; its other children, whose parents have ended, belong
/// to attempt 0, too. 0: none.
std::vector<RunProcess> processes_of(const RunDir& run, const std::string& node, int guardian = 0);
/// Those of the run that belong to a rank, with what they have used.
std::vector<Leftover> processes_of_rank(const RunDir& run, const std::string& node, int rank, int attempt);
/// What a process with this environment will be; nothing: it belongs to no attempt.
std::optional<RunProcess> process_said_by(const std::vector<std::string>& environment);
/// Is there a process of the run, of any node and attempt?
bool lives_here(const RunDir& run);
/// The parent of a process; -1: there is no such process.
int parent_of(int pid);
/// Nothing: it has ended, though its parent may not have waited for it.
std::optional<ProcessFacts> process_facts(int pid);

}  // namespace holdfast::launcher
