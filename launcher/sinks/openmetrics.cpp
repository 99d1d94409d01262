#include "launcher/sinks/openmetrics.hpp"

#include <fmt/format.h>

#include "src/base/files.hpp"

namespace holdfast::launcher::sinks {
namespace {

std::string label_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

struct Row {
  const char *key, *name, *type, *help;
};
constexpr Row rows[] = {
    {"step", "holdfast_steps_total", "counter", "Optimizer steps done."},
    {"tokens", "holdfast_tokens_total", "counter", "Tokens consumed by the run."},
    {"attempt", "holdfast_attempts_total", "counter", "Starts of the ranks so far."},
    {"loss", "holdfast_loss", "gauge", "Mean loss over the tokens of the last step."},
    {"held_out_loss", "holdfast_held_out_loss", "gauge",
     "Loss on the held-out set, where the last step has it."},
    {"grad_norm", "holdfast_gradient_norm", "gauge", "Norm of the gradient of the last step."},
    {"lr", "holdfast_learning_rate", "gauge", "Learning rate of the last step."},
    {"step_s", "holdfast_step_seconds", "gauge", "Duration of the last step."},
    {"tokens_per_s", "holdfast_tokens_per_second", "gauge", "Tokens of all ranks in a second, last step."},
    {"wire_bytes", "holdfast_wire_bytes", "gauge", "Bytes that rank 0 sent in the last step."}};

}  // namespace

OpenMetrics::OpenMetrics(std::filesystem::path file, std::string run)
    : file_(std::move(file)), run_(std::move(run)) {}

OpenMetrics::~OpenMetrics() {
  std::error_code gone_already;
  std::filesystem::remove(file_, gone_already);
}

void OpenMetrics::restart() {
  last_ = nullptr;
  save_stall_s_ = 0;
}

void OpenMetrics::take(const nlohmann::json& line) {
  last_ = line;
  save_stall_s_ += number_in(line, "save_stall_s").value_or(0);
  changed_ = true;
}

std::string OpenMetrics::text() const {
  if (last_.is_null()) return "";
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, double value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0}{{run=\"{3}\"}} {4}\n", name, help, type,
                       label_text(run_), value);
  };
  for (const Row& row : rows)
    if (const auto value = number_in(last_, row.key)) add(row.name, row.type, row.help, *value);
  add("holdfast_save_stall_seconds_total", "counter", "Seconds for which steps waited for saves.",
      save_stall_s_);
  add("holdfast_last_step_timestamp_seconds", "gauge", "When the last step ended, since 1970.",
      unix_time_of(last_));
  return out;
}

void OpenMetrics::flush() {
  if (!changed_) return;
  files::replace_atomically(file_, text(), 0644);
  changed_ = false;
}

}  // namespace holdfast::launcher::sinks
