#pragma once
// Checks programs and libraries that a run needs, and their versions.
#include "launcher/health/check_input.hpp"

namespace holdfast::launcher {

/// Checks SLURM's version and MPI plugins, with its tools.
std::vector<Finding> check_slurm();
/// Which MPI is in PATH? Agents need no mpirun, but its version is often that of the MPI that ranks load.
std::vector<Finding> check_mpi();
/// Checks the libraries of CUDA, NCCL and UCX by loading them; to be called in a process that ends
/// afterwards.
std::vector<Finding> check_libraries(const Expected& expected);

}  // namespace holdfast::launcher
