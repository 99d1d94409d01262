#pragma once
// Compares a job file with the run that it continues: one that does not fit is refused before ranks would
// refuse it.
#include "src/base/run_dir.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// `config` with the lanes of the run in `run`, where it leaves them open: a run keeps its lanes.
config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config);

/// Throws Error (usage) when `run` is the run of another model, naming the first difference.
void check_model(const RunDir& run, const config::ModelShape& model);

/// Checks the checkpoint that ranks would continue from: the one that run.resume names, or with auto the
/// newest in `run` (its path may be empty: there is none yet). Throws Error (usage) when run.resume names one
/// that does not exist, and when it was computed with another model or, unless run.other_numerics is
/// continue, with other arithmetic, as far as settings show it. `config` is resolved. Checkpoints that cannot
/// be read are left to the ranks.
void check_checkpoint(const RunDir& run, const config::RunConfig& config, const config::ModelShape& model);

}  // namespace holdfast::launcher
