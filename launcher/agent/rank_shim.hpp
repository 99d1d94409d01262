#pragma once
// `holdfast start-rank`: what mpirun starts in a rank's place. It gives the rank its environment and its log,
// tells the agent of its start and its end, and ends with its code. A rank dies with its shim.

namespace holdfast::launcher {

/// Reads everything from the environment that the agent gave (rank_env.hpp) and mpirun's rank number.
int start_rank();

}  // namespace holdfast::launcher
