#pragma once
// Checks processors, memory, limits and the clock of the node, and what this process may use of them.
#include <sys/resource.h>

#include "launcher/health/check_input.hpp"

namespace holdfast::launcher {

struct CpuFacts {
  int online = 0;   ///< of the machine
  int allowed = 0;  ///< of this process: cpuset, affinity
};
CpuFacts read_cpus(const Roots& roots);
std::vector<Finding> cpu_findings(const CpuFacts& facts, const Expected& expected);

struct ClockFacts {
  bool known = false;         ///< the kernel has answered
  bool synchronised = false;  ///< by NTP or PTP, as far as the kernel knows
  double offset_s = 0, max_error_s = 0;
};
ClockFacts read_clock();
std::vector<Finding> clock_findings(const ClockFacts& facts);

struct LimitFacts {
  rlim_t files = RLIM_INFINITY, locked = RLIM_INFINITY, processes = RLIM_INFINITY;  ///< soft limits
};
LimitFacts read_limits();
std::vector<Finding> limit_findings(const LimitFacts& facts, const Expected& expected, bool rdma);

/// Checks available memory, the cgroup's limit, and memory errors that the chipset has counted (EDAC).
std::vector<Finding> check_memory(const Roots& roots, const Expected& expected);
std::vector<Finding> check_shm(const Roots& roots, const Expected& expected);
std::vector<Finding> check_kernel(const Roots& roots);

}  // namespace holdfast::launcher
