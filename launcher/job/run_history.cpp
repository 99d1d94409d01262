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

}  // namespace holdfast::launcher
