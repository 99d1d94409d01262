#include "launcher/drill/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

std::vector<RecoveryTimes> recovery_times_of(const CaseRecord& o) {
  std::vector<RecoveryTimes> out;
  for (std::size_t i = 0; i < o.injected.size(); ++i)
    out.push_back(recovery_times(
        o.injected[i],
        i + 1 < o.injected.size() ? o.injected[i + 1].at : std::numeric_limits<double>::infinity(), o.last));
  return out;
}

std::map<std::string, std::vector<double>> times_by_fault(const DrillReport& report) {
  std::map<std::string, std::vector<double>> times;
  for (const auto& c : report.cases) {
    const auto recoveries = recovery_times_of(c.record);
    for (std::size_t i = 0; i < recoveries.size(); ++i) {
      auto& of_fault = times[c.record.injected[i].what.fault->name];
      if (recoveries[i].total) of_fault.push_back(*recoveries[i].total);
    }
  }
  return times;
}

json or_null(const std::optional<double>& value) {
  return value ? json(std::round(*value * 1000) / 1000) : json();
}
std::string in_words(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "–";
}

std::string target_text(const ChosenFault& injection) {
  if (injection.rank >= 0) return fmt::format("rank {} on {}", injection.rank, injection.nodes.front());
  std::string names;
  for (const auto& node : injection.nodes) names += (names.empty() ? "" : ", ") + node;
  return names.empty() ? "–" : names;
}

std::string expectation(const DrillCase& plan) {
  return plan.exit_code == 0 ? "the same bits" : fmt::format("a stop with exit code {}", plan.exit_code);
}

int restored(const CaseRecord& o) {
  return static_cast<int>(
      std::count_if(o.last.state.attempts.begin(), o.last.state.attempts.end(),
                    [](const AttemptRecord& a) { return a.restored && a.restored->step > 0; }));
}

json case_json(const CaseReport& c) {
  const CaseRecord& o = c.record;
  json faults = json::array();
  const auto recoveries = recovery_times_of(o);
  for (std::size_t i = 0; i < o.injected.size(); ++i) {
    const Injected& s = o.injected[i];
    faults.push_back({{"fault", s.what.fault->name},
                      {"injector", name_of(s.what.fault->injector)},
                      {"nodes", s.what.nodes},
                      {"rank", s.what.rank < 0 ? json() : json(s.what.rank)},
                      {"seconds", s.what.seconds},
                      {"unix", s.at},
                      {"step", s.step},
                      {"detect_s", or_null(recoveries[i].detect)},
                      {"decide_s", or_null(recoveries[i].decide)},
                      {"launch_s", or_null(recoveries[i].launch)},
                      {"restore_s", or_null(recoveries[i].restore)},
                      {"first_step_s", or_null(recoveries[i].step)},
                      {"total_s", or_null(recoveries[i].total)}});
  }
  const auto& state = o.last.state;
  json lost = json::array();
  for (const auto& a : state.attempts) lost.push_back(a.lost_steps);
  return {{"case", o.plan.name},
          {"repetition", o.repetition},
          {"seed", o.seed},
          {"run", o.run},
          {"passed", c.differences.empty()},
          {"differences", c.differences},
          {"expected_exit_code", o.plan.exit_code},
          {"exit_code", state.outcome ? json(state.outcome->exit_code) : json()},
          {"state_digest", state.final_state ? json(state.final_state->state_digest) : json()},
          {"attempts", state.attempts.size()},
          {"restored", restored(o)},
          {"lost_steps", lost},
          {"submissions", o.submissions},
          {"wall_s", or_null(c.wall_s)},
          {"faults", faults}};
}

}  // namespace

double percentile(std::vector<double> values, double part) {
  expects(!values.empty() && part > 0 && part <= 1,
          "a percentile is of at least one value, and of a part in (0, 1]");
  std::sort(values.begin(), values.end());
  return values[as_size(std::ceil(part * static_cast<double>(values.size()))) - 1];
}

json report_json(const DrillReport& report) {
  json cases = json::array(), times = json::object();
  for (const auto& c : report.cases) cases.push_back(case_json(c));
  for (const auto& [fault, seconds] : times_by_fault(report)) {
    times[fault] = {{"count", seconds.size()}};
    if (!seconds.empty())
      times[fault]["p50_s"] = or_null(percentile(seconds, 0.5)),
      times[fault]["p99_s"] = or_null(percentile(seconds, 0.99));
  }
  return {{"schema_version", 1},       {"drill", report.name}, {"seed", report.seed}, {"began", report.began},
          {"passed", report.passed()}, {"cases", cases},       {"times", times}};
}

std::string report_text(const DrillReport& report) {
  const auto good = std::count_if(report.cases.begin(), report.cases.end(),
                                  [](const CaseReport& c) { return c.differences.empty(); });
  std::size_t injected = 0;
  for (const auto& c : report.cases) injected += c.record.injected.size();
  const auto times = times_by_fault(report);
  std::string text = fmt::format(
      "# Drill: {}\n\n{} of {} cases as expected; {} faults of {} types. Seed {}, begun {}.\n\n"
      "Times are seconds from the fault to the run's next new step, and their parts.\n\n"
      "| Case | Fault | Target | At step | Detect | Decide | Launch | Restore | Step | Total | Attempts | "
      "Result |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      report.name, good, report.cases.size(), injected, times.size(), report.seed, report.began);
  for (const auto& c : report.cases) {
    const auto recoveries = recovery_times_of(c.record);
    const std::string result = c.differences.empty() ? expectation(c.record.plan) : "**FAILED**";
    const std::string label = fmt::format("{} {}", c.record.plan.name, c.record.repetition);
    for (std::size_t i = 0; i < recoveries.size(); ++i) {
      const Injected& s = c.record.injected[i];
      const RecoveryTimes& p = recoveries[i];
      text += fmt::format(
          "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", i == 0 ? label : "",
          s.what.fault->name, target_text(s.what), s.step, in_words(p.detect), in_words(p.decide),
          in_words(p.launch), in_words(p.restore), in_words(p.step), in_words(p.total),
          i == 0 ? std::to_string(c.record.last.state.attempts.size()) : "", i == 0 ? result : "");
    }
    if (recoveries.empty())
      text += fmt::format("| {} | – | – | – | – | – | – | – | – | – | – | {} |\n", label, result);
  }
  text += "\n| Fault | Times measured | p50 | p99 |\n|---|---|---|---|\n";
  for (const auto& [fault, seconds] : times)
    text += seconds.empty() ? fmt::format("| {} | 0 | – | – |\n", fault)
                            : fmt::format("| {} | {} | {:.2f} | {:.2f} |\n", fault, seconds.size(),
                                          percentile(seconds, 0.5), percentile(seconds, 0.99));
  for (const auto& c : report.cases) {
    if (c.differences.empty()) continue;
    text += fmt::format("\n{} {} ({}):\n\n", c.record.plan.name, c.record.repetition, c.record.run);
    for (const auto& why : c.differences) text += "- " + why + "\n";
  }
  return text;
}

}  // namespace holdfast::launcher
