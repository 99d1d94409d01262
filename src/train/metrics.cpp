#include "src/train/metrics.hpp"

#include <fcntl.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {

Metrics::Metrics(std::filesystem::path path, std::int64_t step, int attempt)
    : path_(std::move(path)), attempt_(attempt) {
  std::string kept;
  std::int64_t last = 0;
  if (std::filesystem::exists(path_)) {
    std::istringstream lines(files::read_text(path_));
    for (std::string line;
         std::getline(lines, line) && !lines.eof();) {  // a line without its newline is torn
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
      const auto at = json["step"].get<std::int64_t>();
      if (at <= last || at > step) continue;
      last = at;
      if (json.contains("loss") && json["loss"].is_number()) last_loss_ = json["loss"].get<double>();
      if (json.contains("step_s") && json["step_s"].is_number())
        seconds_before_ += json["step_s"].get<double>();
      kept += line + "\n";
    }
  }
  // Rank 0 may die between a step and its line while the others keep the state of that step.
  if (last > 0 && last == step - 1)
    kept += nlohmann::ordered_json{{"schema_version", 1}, {"step", step},        {"loss", nullptr},
                                   {"lost", true},        {"attempt", attempt_}, {"time", utc_now()}}
                .dump() +
            "\n";
  files::replace_atomically(path_, kept);
  file_ = files::open(path_, O_WRONLY | O_APPEND);
}

void Metrics::append(const StepMetrics& m) noexcept {
  last_loss_ = m.loss;
  const bool was_torn = torn_;
  try {
    nlohmann::ordered_json json = {{"schema_version", 1},
                                   {"step", m.step},
                                   {"loss", m.loss},
                                   {"grad_norm", m.gradient_norm},
                                   {"lr", m.lr},
                                   {"tokens", m.tokens},
                                   {"tokens_per_s", m.tokens_per_s},
                                   {"step_s", m.step_s},
                                   {"allocations", m.allocations},
                                   {"wire_bytes", m.wire_bytes},
                                   {"attempt", attempt_},
                                   {"time", utc_now()}};
    if (m.save_stall_s > 0) json["save_stall_s"] = m.save_stall_s;
    if (m.saving)
      json["saving"] = {{"every", m.saving->every},
                        {"begun", m.saving->begun},
                        {"skipped", m.saving->skipped},
                        {"failed", m.saving->failed},
                        {"stall_s", m.saving->stall_s},
                        {"persist_s", m.saving->persist_s},
                        {"bytes", m.saving->bytes},
                        {"overhead", m.saving->overhead},
                        {"expected_loss", m.saving->expected_loss}};
    if (m.held_out_loss) json["held_out_loss"] = *m.held_out_loss;
    torn_ = true;
    files::append_all(file_.get(), (was_torn ? "\n" : "") + json.dump() + "\n", path_);
    torn_ = false;
  } catch (const std::exception& error) {
    if (!was_torn) log::warn("step {} is missing from the metrics: {}", m.step, error.what());
  }
}

}  // namespace holdfast::train
