#include "src/train/loop/result.hpp"

#include <nlohmann/json.hpp>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"

namespace holdfast::train {

void write_result(const std::filesystem::path& path, const control::FinalState& state, double goodput,
                  const std::optional<checkpoint::Best>& best) {
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"status", "done"},
                                 {"final_step", state.step},
                                 {"final_loss", state.loss},
                                 {"state_digest", state.state_digest},
                                 {"attempts", nlohmann::json::array()},
                                 {"tokens", state.tokens},
                                 {"goodput", goodput},
                                 {"best", nullptr},
                                 {"time", utc_now()}};
  if (best) {
    json["best"] = {{"step", best->step}, {"held_out_loss", nullptr}};
    if (best->held_out_loss) json["best"]["held_out_loss"] = *best->held_out_loss;
  }
  files::replace_atomically(path, json.dump(2) + "\n");
}

}  // namespace holdfast::train
