#pragma once
// What a run already is: a job file that has changed since is refused before ranks would refuse it.
#include "src/base/run_dir.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// `config` with the lanes that the run in `run` began with, where it leaves them open: a run keeps them.
config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config);

/// Throws Error (usage) when `run` is the run of another model, naming the first difference.
void check_model(const RunDir& run, const config::ModelShape& model);

/// Of the checkpoint that ranks would go on from: the one that run.resume names, or with auto the newest in
/// `run` (its path may be empty: there is none yet). Throws Error (usage) when run.resume names none, and
/// when it was computed with another model or, unless run.other_numerics says to continue, with other
/// arithmetic, as far as settings say it. `config` is resolved. What cannot be read is left to the ranks.
void check_checkpoint(const RunDir& run, const config::RunConfig& config, const config::ModelShape& model);

}  // namespace holdfast::launcher
