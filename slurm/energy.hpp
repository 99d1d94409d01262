#pragma once
// The energy of jobs, as SLURM's accounting has it: for `holdfast report`.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/job_env.hpp"

namespace holdfast::slurm {

/// One allocation of a job. A job that was put back into the queue has had several.
struct JobEnergy {
  JobId job = 0;
  double start = 0;              ///< Unix seconds
  std::optional<double> end;     ///< absent: it has not ended, and its energy is not summed up yet
  std::optional<double> joules;  ///< ConsumedEnergyRaw; absent: nothing was measured
};

struct Energy {
  std::vector<JobEnergy> jobs;  ///< by start
  std::string source;           ///< who measures here: "ipmi", "rapl", "gpu"; "": nobody
  std::string unknown;          ///< why something of this is not known; else ""
};

/// Allocations of these jobs that have run between two times (Unix seconds): numbers of jobs are used again.
/// A minute more on either side: clocks differ, and SLURM has whole seconds. Where no plug-in measures
/// energy, SLURM writes 0, nothing, or 2^64 - 2: none of these is a measured value. Lines that cannot be read
/// are left out. Pure.
std::vector<JobEnergy> read_energy(std::string_view out, const std::vector<JobId>& jobs, double from,
                                   double until);

/// Two questions to SLURM, each for at most `limit`. Throws nothing: what fails is in `unknown`.
Energy energy(const std::vector<JobId>& jobs, double from, double until, std::chrono::milliseconds limit);

}  // namespace holdfast::slurm
