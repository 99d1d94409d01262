#pragma once
// Programs and libraries that a run needs, and their versions.
#include "launcher/health/look.hpp"

namespace holdfast::launcher {

/// SLURM's version and MPI plugins, by its tools.
std::vector<Finding> check_slurm();
/// Open MPI, by mpirun: agents start ranks with it.
std::vector<Finding> check_mpi();
/// CUDA's, NCCL's and UCX's libraries, by loading them: in a process that ends afterwards.
std::vector<Finding> check_libraries(const Expected& expected);

}  // namespace holdfast::launcher
