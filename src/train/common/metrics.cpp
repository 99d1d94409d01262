#include "src/train/common/metrics.hpp"

#include <fcntl.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::train {
namespace {

nlohmann::ordered_json to_json(const StepMetrics& m, int attempt) {
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
                                 {"data_wait_s", m.data_wait_s},
                                 {"host_peak_bytes", m.host_peak_bytes},
                                 {"attempt", attempt},
                                 {"time", utc_now()}};
  if (m.device_peak_bytes > 0) json["device_peak_bytes"] = m.device_peak_bytes;
  if (m.mfu) {
    json["mfu"] = m.mfu->palm;
    json["mfu_causal"] = m.mfu->causal;
  }
  for (const auto& [source, loss] : m.loss_by_source) json["loss_by_source"][source] = loss;
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
  if (!m.held_out.empty()) json["held_out_loss"] = m.held_out.front().second;
  if (m.held_out.size() > 1)
    for (const auto& [file, loss] : m.held_out) json["held_out_by_file"][file] = loss;
  return json;
}

std::string lost_line(std::int64_t step, int attempt) {
  return nlohmann::ordered_json{{"schema_version", 1}, {"step", step},       {"loss", nullptr},
                                {"lost", true},        {"attempt", attempt}, {"time", utc_now()}}
             .dump() +
         "\n";
}

/// What the lines that were kept say.
struct Kept {
  std::optional<double> last_loss;
  double seconds = 0;
};

}  // namespace

struct Metrics::File {
  std::filesystem::path path;
  files::Fd fd = {};
  bool torn = false;  ///< the last line may be incomplete

  Kept keep(std::int64_t step, int attempt) {
    Kept out;
    std::string kept;
    std::int64_t last = 0;
    if (files::exists_or_fail(path)) {
      std::istringstream lines(files::read_text(path, {.limit = files::no_limit}));
      for (std::string line;
           std::getline(lines, line) && !lines.eof();) {  // a line without its newline is torn
        const auto json = json_from(line);
        if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
        const auto at = json["step"].get<std::int64_t>();
        if (at <= last || at > step) continue;
        last = at;
        if (json.contains("loss") && json["loss"].is_number()) out.last_loss = json["loss"].get<double>();
        if (json.contains("step_s") && json["step_s"].is_number())
          out.seconds += json["step_s"].get<double>();
        kept += line + "\n";
      }
    }
    // Lines die with rank 0 when it dies before they are written, while the others keep the state of their
    // steps. Without any line nobody knows with which step the run began.
    if (last > 0)
      while (last < step) kept += lost_line(++last, attempt);
    files::replace_atomically(path, kept);
    fd = files::open(path, O_WRONLY | O_APPEND);
    torn = false;
    return out;
  }

  void append(const std::string& line, std::int64_t step) noexcept {
    const bool was_torn = torn;
    try {
      torn = true;
      files::append_all(fd.get(), was_torn ? "\n" + line : line, path);
      torn = false;
    } catch (const std::exception& error) {
      if (!was_torn) log::warn("step {} is missing from the metrics: {}", step, error.what());
    }
  }
};

Metrics::Metrics(std::filesystem::path path, std::int64_t step, int attempt, WriteQueue& queue)
    : file_(std::make_shared<File>(std::move(path))), queue_(queue), attempt_(attempt) {
  const Kept kept = file_->keep(step, attempt);
  last_loss_ = kept.last_loss;
  seconds_before_ = kept.seconds;
}

void Metrics::append(const StepMetrics& m) {
  last_loss_ = m.loss;
  std::string line = to_json(m, attempt_).dump() + "\n";
  const std::size_t bytes = line.size();
  const bool taken =
      queue_.add(bytes, [file = file_, step = m.step, line = std::move(line)] { file->append(line, step); });
  if (!taken && ++dropped_ == 1)
    log::warn(
        "the metrics are without lines from step {} on: {} has not been written for so long that no "
        "more may wait",
        m.step, file_->path.string());
  if (taken && dropped_ > 0)
    log::warn("the metrics are without the {} steps before step {}", std::exchange(dropped_, 0), m.step);
}

void Metrics::roll_back(std::int64_t step) {
  queue_.add(0, [file = file_, step, attempt = attempt_] {
    try {
      file->keep(step, attempt);
    } catch (const std::exception& error) {
      log::warn("the metrics keep the lines of steps after {}, which are done again: {}", step, error.what());
    }
  });
}

}  // namespace holdfast::train
