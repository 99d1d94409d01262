#pragma once
// `holdfast start-rank`: mpirun starts it in place of a rank. It starts the rank with its environment and its
// log, reports its start and its end to the agent, and ends with its exit code. A rank dies with its shim.

namespace holdfast::launcher {

/// Reads the environment that the agent has set (rank_env.hpp), and mpirun's rank number.
int start_rank();

}  // namespace holdfast::launcher
