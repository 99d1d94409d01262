#include "launcher/sinks/openmetrics.hpp"

#include <fmt/format.h>

#include "src/base/error.hpp"
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

/// A number of a line of metrics.jsonl under its name.
struct Row {
  const char *key, *name, *help;
};
constexpr Row of_step[] = {
    {"step", "holdfast_steps_total", "Optimizer steps done."},
    {"tokens", "holdfast_tokens_total", "Tokens consumed by the run."},
    {"attempt", "holdfast_attempts_total", "Starts of the ranks so far."},
    {"loss", "holdfast_loss", "Mean loss over the tokens of the last step."},
    {"held_out_loss", "holdfast_held_out_loss", "Loss on the held-out set, where the last step has it."},
    {"grad_norm", "holdfast_gradient_norm", "Norm of the gradient of the last step."},
    {"lr", "holdfast_learning_rate", "Learning rate of the last step."},
    {"step_s", "holdfast_step_seconds", "Duration of the last step."},
    {"data_wait_s", "holdfast_data_wait_seconds", "For which rank 0 waited for the data of the last step."},
    {"tokens_per_s", "holdfast_tokens_per_second", "Tokens of all ranks in a second, last step."},
    {"mfu", "holdfast_mfu_ratio", "Model FLOPs utilisation of the last step, PaLM's formula."},
    {"mfu_causal", "holdfast_mfu_causal_ratio", "The same with half of the attention, which is causal."},
    {"host_peak_bytes", "holdfast_host_memory_peak_bytes", "Memory of rank 0's process, at most so far."},
    {"device_peak_bytes", "holdfast_device_memory_peak_bytes",
     "Used memory of rank 0's device, at most so far."},
    {"wire_bytes", "holdfast_wire_bytes", "Bytes that rank 0 sent in the last step."}};
constexpr Row of_save[] = {{"every", "holdfast_save_interval_steps", "Steps between saves now."},
                           {"persist_s", "holdfast_save_seconds",
                            "For which the save that settled last was written, beside training."},
                           {"bytes", "holdfast_save_bytes", "Of rank 0's part of a checkpoint."}};

template <std::size_t count>
void add(std::vector<Family>& out, const Row (&rows)[count], const nlohmann::json& object) {
  for (const Row& row : rows)
    if (const auto value = number_in(object, row.key))
      out.push_back({row.name, row.help, {}, {{"", *value}}});
}

/// A value for each name in an object of the line.
Family each_of(const nlohmann::json& line, const char* key, Family out) {
  const auto losses = line.find(key);
  if (losses == line.end() || !losses->is_object()) return out;
  for (const auto& [name, loss] : losses->items())
    if (const auto value = number_in(*losses, name.c_str())) out.values.push_back({name, *value});
  return out;
}

}  // namespace

std::string text_of(const std::vector<Family>& families, const std::string& run) {
  std::string out;
  for (const Family& f : families) {
    if (f.values.empty()) continue;
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", f.name, f.help,
                       f.name.ends_with("_total") ? "counter" : "gauge");
    for (const auto& [label, number] : f.values) {
      const std::string further =
          f.label.empty() ? "" : fmt::format(",{}=\"{}\"", f.label, label_text(label));
      out += fmt::format("{}{{run=\"{}\"{}}} {}\n", f.name, label_text(run), further, number);
    }
  }
  return out;
}

OpenMetrics::OpenMetrics(std::filesystem::path file, std::string run)
    : file_(std::move(file)), run_(std::move(run)) {
  if (file_.extension() != ".prom")  // a file of another kind would be replaced
    throw Error(Exit::usage, "metrics are not written to " + file_.string(),
                "its name does not end in .prom, and node_exporter reads no other", "Name it NAME.prom?");
}

OpenMetrics::~OpenMetrics() {
  if (!is_written_) return;
  std::error_code gone_already;
  std::filesystem::remove(file_, gone_already);
}

void OpenMetrics::restart() {
  last_ = last_save_ = nullptr;
  save_stall_s_ = data_wait_s_ = 0;
}

void OpenMetrics::take(const nlohmann::json& line) {
  last_ = line;
  if (const auto saving = line.find("saving"); saving != line.end() && saving->is_object())
    last_save_ = *saving;
  save_stall_s_ += number_in(line, "save_stall_s").value_or(0);
  data_wait_s_ += number_in(line, "data_wait_s").value_or(0);
  changed_ = true;
}

void OpenMetrics::record(const StatusFacts& facts) {
  recorded_ = families_of(facts);
  changed_ = true;
}

std::string OpenMetrics::text() const {
  std::vector<Family> families;
  if (!last_.is_null()) {
    add(families, of_step, last_);
    if (!last_save_.is_null()) add(families, of_save, last_save_);
    families.push_back(
        each_of(last_, "loss_by_source",
                {"holdfast_source_loss", "Mean loss of the last step by source of the data.", "source"}));
    families.push_back(each_of(
        last_, "held_out_by_file",
        {"holdfast_held_out_file_loss", "Loss on each held-out file, where the last step has it.", "file"}));
    families.push_back(
        {"holdfast_data_wait_seconds_total", "For which rank 0 waited for data.", {}, {{"", data_wait_s_}}});
    families.push_back({"holdfast_save_stall_seconds_total",
                        "For which steps waited for saves.",
                        {},
                        {{"", save_stall_s_}}});
    families.push_back({"holdfast_last_step_timestamp_seconds",
                        "When the last step ended, since 1970.",
                        {},
                        {{"", unix_time_of(last_)}}});
  }
  families.insert(families.end(), recorded_.begin(), recorded_.end());
  return text_of(families, run_);
}

void OpenMetrics::flush() {
  if (!changed_) return;
  files::replace_atomically(file_, text(), 0644);
  is_written_ = true;
  changed_ = false;
}

}  // namespace holdfast::launcher::sinks
