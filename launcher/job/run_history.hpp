#pragma once
// What a job file leaves open and the run that it continues has settled.
#include "src/base/run_dir.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// `config` with the lanes of the run in `run`, where it leaves them open: a run keeps its lanes.
config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config);

/// The steps of the run in `run`, whose length is `epochs` too; 0: there is none such.
std::int64_t steps_of_run(const RunDir& run, double epochs);

}  // namespace holdfast::launcher
