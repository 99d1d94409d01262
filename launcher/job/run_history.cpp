#include "launcher/job/run_history.hpp"

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {

config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config) {
  if (config.train.lanes != 0 || run.path.empty() || !files::exists_or_fail(run.config())) return config;
  try {
    const config::Train began = config::load(run.config()).config.train;
    if (config::micro_batches(began) == config::micro_batches(config.train)) config.train.lanes = began.lanes;
  } catch (const Error&) {  // settings of another version; if lanes differ, the ranks refuse
  }
  return config;
}

std::int64_t steps_of_run(const RunDir& run, double epochs) {
  try {
    const config::Train began = config::load(run.config()).config.train;
    return began.epochs == epochs ? began.steps : 0;
  } catch (const Error&) {  // there are none, or they are of another version
    return 0;
  }
}

}  // namespace holdfast::launcher
