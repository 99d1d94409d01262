#include "launcher/job/run_history.hpp"

#include <filesystem>

#include "src/base/error.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {

config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config) {
  if (config.train.lanes != 0 || run.path.empty() || !std::filesystem::exists(run.config())) return config;
  try {
    const config::Train began = config::load(run.config()).config.train;
    if (began.leaves == config.train.leaves) config.train.lanes = began.lanes;
  } catch (const Error&) {  // of another version; if they differ, ranks say so
  }
  return config;
}

}  // namespace holdfast::launcher
