#pragma once
// Fencing on a node: what belongs to an older attempt is found by its environment and ended, whoever started
// it.
#include <string>
#include <vector>

#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

struct RunProcess {
  int pid = 0, attempt = 0;
  int rank = -1;     ///< whose, or whose child's; -1: mpirun's, or of another of its helpers
  std::string name;  ///< as the kernel shows it: at most 15 characters
};

/// Live processes of this user that carry this run's HOLDFAST_RUN_DIR, HOLDFAST_NODE and an attempt, from
/// /proc.
std::vector<RunProcess> processes_of(const RunDir& run, const std::string& node);
/// Does a process of the run live here, of whatever node and attempt?
bool lives_here(const RunDir& run);
/// Its parent now; -1: there is no such process.
int parent_of(int pid);
/// `signal` to each with an attempt below `attempt`; returns how many were found (0: they are gone).
int kill_older(const RunDir& run, const std::string& node, int attempt, int signal);

}  // namespace holdfast::launcher
