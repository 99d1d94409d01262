#include "launcher/report/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher::report {
namespace {

using nlohmann::json;

constexpr std::uint64_t longest_line = 64 * 1024, read_block = 1 << 20;  // bytes

/// Null where there is no such file, or where it is no JSON object; the latter is a gap.
json object_in(const std::filesystem::path& file, std::vector<std::string>& gaps) {
  if (!files::is_there(file)) return nullptr;
  try {
    json object = json_from(files::read_text(file));
    if (object.is_object()) return object;
    gaps.push_back(file.filename().string() + " is damaged: it is no JSON object.");
  } catch (const Error& e) {
    gaps.push_back(fmt::format("{} cannot be read: {}", file.filename().string(), e.what()));
  }
  return nullptr;
}

void read_metrics(const std::filesystem::path& file, Metrics& metrics, std::vector<std::string>& gaps) {
  if (!files::is_there(file)) return;
  try {
    std::string rest;  // of a line; the last one may still be written
    std::uint64_t at = 0;
    for (;;) {
      const std::string block = files::read_part(file, at, read_block);
      if (block.empty()) break;
      at += block.size();
      rest += block;
      std::size_t begin = 0;
      for (std::size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1)
        take_line(metrics, rest.substr(begin, end - begin));
      rest.erase(0, begin);
      if (rest.size() > read_block) {
        gaps.push_back("metrics.jsonl has a line of more than 1 MiB; what follows is left out.");
        break;
      }
    }
  } catch (const Error& e) {
    gaps.push_back(fmt::format("metrics.jsonl cannot be read: {}", e.what()));
  }
  if (metrics.damaged > 0)
    gaps.push_back(
        fmt::format("{} lines of metrics.jsonl cannot be read; they are left out.", metrics.damaged));
}

}  // namespace

std::optional<json> last_metrics_line(const std::filesystem::path& file) {
  if (!files::is_there(file)) return std::nullopt;
  std::string text = files::read_end(file, longest_line);
  // What stands behind the last line feed is still being written.
  text.resize(text.find_last_of('\n') == std::string::npos ? 0 : text.find_last_of('\n'));
  const json line = json_from(text.substr(text.find_last_of('\n') + 1));
  return line.is_object() ? std::optional(line) : std::nullopt;
}

void take_line(Metrics& metrics, const std::string& line) { take(metrics, json_from(line)); }

void take(Metrics& m, const json& object) {
  const auto step = object.is_object() ? typed<double>(object, "step") : std::nullopt;
  if (!step || *step < 1 || *step > 1e15) {
    ++m.damaged;
    return;
  }
  ++m.lines;
  const auto at = static_cast<std::int64_t>(*step);
  if (object.contains("lost")) {
    ++m.lost;
    return;
  }
  const auto add = [&](Series& series, const json& from, const char* key) {
    if (const auto value = typed<double>(from, key)) series.add(at, *value);
  };
  if (!typed<double>(object, "loss")) ++m.without_loss;
  add(m.loss, object, "loss");
  add(m.held_out, object, "held_out_loss");
  add(m.tokens_per_s, object, "tokens_per_s");
  add(m.step_s, object, "step_s");
  add(m.mfu, object, "mfu");
  add(m.mfu_causal, object, "mfu_causal");
  m.save_stall_s += typed<double>(object, "save_stall_s").value_or(0);
  m.data_wait_s += typed<double>(object, "data_wait_s").value_or(0);
  m.host_peak_bytes = std::max(m.host_peak_bytes, typed<double>(object, "host_peak_bytes").value_or(0));
  m.device_peak_bytes = std::max(m.device_peak_bytes, typed<double>(object, "device_peak_bytes").value_or(0));
  const auto add_each = [&](std::map<std::string, Series>& all, const char* key) {
    const auto losses = object.find(key);
    if (losses == object.end() || !losses->is_object()) return;
    for (const auto& [name, loss] : losses->items())
      if (loss.is_number()) all[name].add(at, loss.get<double>());
  };
  add_each(m.loss_by_source, "loss_by_source");
  add_each(m.held_out_by_file, "held_out_by_file");
  const auto saving = object.find("saving");
  if (saving != object.end() && saving->is_object() && typed<double>(*saving, "persist_s").value_or(0) > 0)
    add(m.persist_s, *saving, "persist_s");
}

std::filesystem::path metrics_of(const RunDir& run, const config::RankPromises& promises) {
  return promises.writes_run_dir ? run.metrics() : run.reported_metrics();
}

Facts read_facts(const RunDir& run) {
  Facts facts;
  facts.dir = run.path.string();
  const auto settings = config::without_secrets(config::read_settings(run));
  facts.name = settings.run.name;
  const auto promises = config::promises_of(settings.rank);
  if (promises.trains_as_set) facts.steps = settings.train.steps;
  facts.settings = config::changed_settings(config::RunConfig{}, settings);
  facts.all_settings = config::to_toml(settings);
  try {
    facts.events = read_events(run);
  } catch (const Error& e) {
    facts.gaps.push_back(fmt::format("The event log cannot be read: {}", e.what()));
  }
  for (const auto& entry : facts.events) apply(facts.state, entry);
  facts.result = result_of(facts.state);
  const json ended = object_in(run.result(), facts.gaps);
  const bool of_this_end = facts.state.outcome && ended.is_object() && ended.contains("term") &&
                           ended["term"] == facts.state.outcome->term && ended.contains("job") &&
                           ended["job"] == facts.state.job;
  if (ended.is_object() && (facts.events.empty() || of_this_end)) facts.result = ended;
  facts.plan = object_in(run.plan(), facts.gaps);
  if (facts.plan.is_object() && facts.plan.contains("plan")) facts.plan = json(facts.plan["plan"]);
  read_metrics(metrics_of(run, promises), facts.metrics, facts.gaps);
  return facts;
}

std::vector<slurm::JobId> jobs_of(const std::vector<LogEntry>& events) {
  std::vector<slurm::JobId> jobs;
  for (const auto& entry : events) {
    const auto* elected = std::get_if<events::LeaderElected>(&entry.event);
    if (!elected) continue;
    slurm::JobId job = 0;  // of "4711.1": the job and its restart
    std::from_chars(elected->job.data(), elected->job.data() + elected->job.size(), job);
    if (job > 0 && std::ranges::find(jobs, job) == jobs.end()) jobs.push_back(job);
  }
  return jobs;
}

}  // namespace holdfast::launcher::report
