#pragma once
// What a run already is.
#include "src/base/run_dir.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// `config` with the lanes that the run in `run` began with, where it leaves them open: a run keeps them.
config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config);

}  // namespace holdfast::launcher
