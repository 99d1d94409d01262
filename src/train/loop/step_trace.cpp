#include "src/train/loop/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {
namespace {

using tensor::Work;

std::int64_t ns_of(Clock::time_point time) {  // Clock is CLOCK_MONOTONIC
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
double us_of(std::int64_t ns) { return static_cast<double>(ns) / 1000.0; }

}  // namespace

std::string to_text(const TimeTable& t) {
  const double steps = static_cast<double>(std::max<std::int64_t>(1, t.steps));
  std::string out = fmt::format("{:<26} {:>10} {:>7} {:>9}\n", "per step", "ms", "share", "GFLOP/s");
  double known = 0;
  const auto line = [&](std::string_view name, double seconds, double flops) {
    out += fmt::format("{:<26} {:>10.2f} {:>6.1f}% {:>9}\n", name, 1e3 * seconds / steps,
                       t.seconds > 0 ? 100 * seconds / t.seconds : 0.0,
                       flops > 0 && seconds > 0 ? fmt::format("{:.0f}", flops / seconds / 1e9) : "");
  };
  for (std::size_t kind = 0; kind < t.work.size(); ++kind) {
    line(name_of(static_cast<Work>(kind)), t.work[kind].seconds, t.work[kind].flops);
    known += t.work[kind].seconds;
  }
  line("other", std::max(0.0, t.seconds - known), 0);
  line("all", t.seconds, 0);
  out += fmt::format("{:<26} {:>10.2f} {:>6.1f}% hidden behind compute\n", "communication",
                     1e3 * t.communicating / steps, 100 * t.hidden());
  return out;
}

std::int64_t covered(std::vector<WireSpan> spans) {
  std::ranges::sort(spans, {}, &WireSpan::start_ns);
  std::int64_t sum = 0, end = INT64_MIN;
  for (const WireSpan& span : spans) {
    sum += std::max<std::int64_t>(0, span.end_ns - std::max(span.start_ns, end));
    end = std::max(end, span.end_ns);
  }
  return sum;
}

std::string trace_json(int rank, const std::vector<tensor::Profile::Span>& compute,
                       const std::vector<WireSpan>& wire) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  const auto name_thread = [&](int thread, const std::string& name) {
    events.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}});
  };
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank},
                    {"args", {{"name", fmt::format("rank {}", rank)}}}});
  name_thread(0, "compute");
  for (const auto& span : compute)
    events.push_back({{"name", span.name},
                      {"cat", name_of(span.work)},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", 0},
                      {"ts", us_of(ns_of(span.start))},
                      {"dur", us_of(ns_of(span.end) - ns_of(span.start))}});
  std::map<std::string, int> threads;
  for (const WireSpan& span : wire) {
    const auto [at, fresh] = threads.try_emplace(span.group, static_cast<int>(threads.size()) + 1);
    if (fresh) name_thread(at->second, span.group);
    events.push_back({{"name", span.operation},
                      {"cat", "communication"},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", at->second},
                      {"ts", us_of(span.start_ns)},
                      {"dur", us_of(span.end_ns - span.start_ns)},
                      {"args", {{"bytes", span.bytes}}}});
  }
  return Json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

StepTrace::StepTrace(const config::Trace& settings, std::filesystem::path folder, int rank,
                     tensor::Profile& profile, const flight::FlightRecorder* recorder, WriteQueue& queue)
    : settings_(settings),
      folder_(std::move(folder)),
      rank_(rank),
      profile_(profile),
      recorder_(recorder),
      queue_(queue) {}

void StepTrace::begin(std::int64_t step) {
  if (!traced(step)) return;
  if (!running_) {
    profile_.clear();
    profile_.trace(true);
    if (recorder_ != nullptr) drained_ = recorder_->finished();
    running_ = true;
  }
  began_ = Clock::now();
}

void StepTrace::end(std::int64_t done) {
  if (!running_) return;
  table_.seconds += std::chrono::duration<double>(Clock::now() - began_).count();
  ++table_.steps;
  drain();
  if (!traced(done)) finish();
}

void StepTrace::drain() {
  if (recorder_ == nullptr) return;
  for (const std::uint64_t end = recorder_->finished(); drained_ < end; ++drained_)
    if (const auto entry = recorder_->finished(drained_))
      wire_.push_back({flight::name_of(entry->operation), entry->name, entry->started_ns, entry->finished_ns,
                       entry->bytes});
}

void StepTrace::finish() {
  running_ = false;
  profile_.trace(false);
  for (std::size_t kind = 0; kind < table_.work.size(); ++kind)
    table_.work[kind] = profile_.totals(static_cast<Work>(kind));
  table_.communicating = static_cast<double>(covered(wire_)) * 1e-9;
  if (rank_ == 0) log::info("{} traced steps on rank 0\n{}", table_.steps, to_text(table_));
  if (profile_.left_out() > 0) log::warn("the trace leaves out {} spans", profile_.left_out());
  std::string text = trace_json(rank_, profile_.spans(), wire_);
  const std::size_t bytes = text.size();
  const bool taken =
      queue_.add(bytes, [file = folder_ / fmt::format("rank-{:05}.json", rank_), text = std::move(text)] {
        try {
          std::filesystem::create_directories(file.parent_path());
          files::replace_atomically(file, text);
        } catch (const std::exception& error) {
          log::warn("the trace is lost: {}", error.what());
        }
      });
  if (!taken) log::warn("the trace is lost: {} bytes more may not wait for {}", bytes, folder_.string());
  profile_.clear();
  wire_.clear();
}

}  // namespace holdfast::train
