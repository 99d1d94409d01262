#include "src/train/loop/result.hpp"

#include <nlohmann/json.hpp>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"

namespace holdfast::train {

void write_result(const std::filesystem::path& path, const control::FinalState& state, double goodput) {
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"status", "done"},
                                 {"final_step", state.step},
                                 {"final_loss", state.loss},
                                 {"state_digest", state.state_digest},
                                 {"attempts", nlohmann::json::array()},
                                 {"tokens", state.tokens},
                                 {"goodput", goodput},
                                 {"time", utc_now()}};
  files::replace_atomically(path, json.dump(2) + "\n");
}

}  // namespace holdfast::train
