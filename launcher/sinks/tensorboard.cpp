#include "launcher/sinks/tensorboard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "checkpoint/io/crc32c.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher::sinks {
namespace {

template <class Number>
std::string little_endian(Number value) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

/// A field of protobuf whose value has a length; `key` is its number and wire type.
std::string sized(char key, std::string_view bytes) {
  return std::string(1, key) + varint(bytes.size()) + std::string(bytes);
}

// tensorflow/core/util/event.proto, summary.proto: field number and wire type in one byte.
constexpr char event_wall_time = 0x09, event_step = 0x10, event_file_version = 0x1a, event_summary = 0x2a,
               event_session_log = 0x3a, summary_value = 0x0a, value_tag = 0x0a, value_simple = 0x15,
               session_status = 0x08;
constexpr char session_start = 1;

std::string event(double unix, std::int64_t step, std::string_view what) {
  return tf_record(std::string(1, event_wall_time) + little_endian(unix) + event_step +
                   varint(static_cast<std::uint64_t>(step)) + std::string(what));
}

std::string summary(const Scalars& scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars)
    values +=
        sized(summary_value, sized(value_tag, tag) + value_simple + little_endian(static_cast<float>(value)));
  return sized(event_summary, values);
}

}  // namespace

Scalars scalars_of(const nlohmann::json& line) {
  struct Row {
    const char* key;
    std::string_view tag;
  };
  static constexpr std::array rows{Row{"loss", "loss_metrics/global_avg_loss"},
                                   Row{"held_out_loss", "validation_metrics/loss"},
                                   Row{"grad_norm", "grad_norm"},
                                   Row{"lr", "lr"},
                                   Row{"tokens", "n_tokens_seen"},
                                   Row{"step_s", "time_metrics/end_to_end(s)"},
                                   Row{"data_wait_s", "time_metrics/data_loading(s)"},
                                   Row{"mfu_causal", "holdfast/mfu_causal"},
                                   Row{"host_peak_bytes", "holdfast/host_peak_bytes"},
                                   Row{"device_peak_bytes", "holdfast/device_peak_bytes"},
                                   Row{"tokens_per_s", "holdfast/tokens_per_s"},  // theirs is of one device
                                   Row{"save_stall_s", "holdfast/save_stall_s"}};
  Scalars out;
  for (const auto& [key, tag] : rows)
    if (const auto value = number_in(line, key)) out.emplace_back(tag, *value);
  if (const auto mfu = number_in(line, "mfu")) out.emplace_back("mfu(%)", 100 * *mfu);
  for (const char* const each : {"loss_by_source", "held_out_by_file"}) {
    const auto losses = line.find(each);
    if (losses == line.end() || !losses->is_object()) continue;
    for (const auto& [name, loss] : losses->items())
      if (const auto value = number_in(*losses, name.c_str()))
        out.emplace_back(fmt::format("holdfast/{}/{}", each, name), *value);
  }
  return out;
}

std::string tf_record(std::string_view data) {
  const auto masked = [](std::string_view bytes) {
    return little_endian(std::rotr(checkpoint::crc32c(bytes.data(), bytes.size()), 15) + 0xa282ead8u);
  };
  const std::string length = little_endian(std::uint64_t{data.size()});
  return length + masked(length) + std::string(data) + masked(data);
}

TensorBoard::TensorBoard(std::filesystem::path folder) : folder_(std::move(folder)) { begin(); }

void TensorBoard::begin() {
  std::filesystem::create_directories(folder_);
  const double now = unix_seconds();
  // TensorBoard reads the files of a folder in the order of their names.
  for (int i = 0; file_.empty() || files::is_there(file_); ++i)
    file_ = folder_ / fmt::format("events.out.tfevents.{}.holdfast.{}.{:04}", static_cast<std::int64_t>(now),
                                  ::getpid(), i);
  written_ = 0;
  waiting_ = event(now, 0, sized(event_file_version, "brain.Event:2")) +
             event(now, 1, sized(event_session_log, {std::string{session_status, session_start}}));
}

void TensorBoard::restart() { begin(); }

void TensorBoard::take(const nlohmann::json& line) {
  if (waiting_.size() >= max_waiting) {
    if (!std::exchange(full_, true))
      log::warn("{} is without steps from {} on: it has not been written for so long that no more may wait",
                file_.string(), line["step"].get<std::int64_t>());
    return;
  }
  waiting_ += event(unix_time_of(line), line["step"].get<std::int64_t>(), summary(scalars_of(line)));
}

void TensorBoard::flush() {
  if (waiting_.empty()) return;
  const auto fd = files::open(file_, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  try {
    files::append_all(fd.get(), waiting_, file_);
  } catch (const Error&) {
    // A part of a record would make what follows unreadable.
    if (::ftruncate(fd.get(), written_) != 0) throw system_error("cannot cut " + file_.string(), errno);
    throw;
  }
  written_ += static_cast<std::int64_t>(waiting_.size());
  waiting_.clear();
  full_ = false;
}

}  // namespace holdfast::launcher::sinks
