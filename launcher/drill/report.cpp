#include "launcher/drill/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

std::vector<Split> splits_of(const Outcome& o) {
  std::vector<Split> out;
  for (std::size_t i = 0; i < o.struck.size(); ++i)
    out.push_back(split_of(
        o.struck[i], i + 1 < o.struck.size() ? o.struck[i + 1].at : std::numeric_limits<double>::infinity(),
        o.last));
  return out;
}

std::map<std::string, std::vector<double>> times_by_fault(const CampaignReport& report) {
  std::map<std::string, std::vector<double>> times;
  for (const auto& c : report.cases) {
    const auto splits = splits_of(c.outcome);
    for (std::size_t i = 0; i < splits.size(); ++i) {
      auto& of_fault = times[c.outcome.struck[i].what.fault->name];
      if (splits[i].total) of_fault.push_back(*splits[i].total);
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

std::string whom(const Strike& strike) {
  if (strike.rank >= 0) return fmt::format("rank {} on {}", strike.rank, strike.nodes.front());
  std::string names;
  for (const auto& node : strike.nodes) names += (names.empty() ? "" : ", ") + node;
  return names.empty() ? "–" : names;
}

std::string expectation(const DrillCase& plan) {
  return plan.exit_code == 0 ? "the same bits" : fmt::format("a stop with exit code {}", plan.exit_code);
}

int restored(const Outcome& o) {
  return static_cast<int>(
      std::count_if(o.last.state.attempts.begin(), o.last.state.attempts.end(),
                    [](const AttemptRecord& a) { return a.restored && a.restored->step > 0; }));
}

json case_json(const CaseReport& c) {
  const Outcome& o = c.outcome;
  json dealt = json::array();
  const auto splits = splits_of(o);
  for (std::size_t i = 0; i < o.struck.size(); ++i) {
    const Struck& s = o.struck[i];
    dealt.push_back({{"fault", s.what.fault->name},
                     {"hand", name_of(s.what.fault->hand)},
                     {"nodes", s.what.nodes},
                     {"rank", s.what.rank < 0 ? json() : json(s.what.rank)},
                     {"seconds", s.what.seconds},
                     {"unix", s.at},
                     {"step", s.step},
                     {"detect_s", or_null(splits[i].detect)},
                     {"decide_s", or_null(splits[i].decide)},
                     {"launch_s", or_null(splits[i].launch)},
                     {"restore_s", or_null(splits[i].restore)},
                     {"first_step_s", or_null(splits[i].step)},
                     {"total_s", or_null(splits[i].total)}});
  }
  const auto& state = o.last.state;
  json lost = json::array();
  for (const auto& a : state.attempts) lost.push_back(a.lost_steps);
  return {{"case", o.plan.name},
          {"repetition", o.repetition},
          {"seed", o.seed},
          {"run", o.run},
          {"passed", c.wrong.empty()},
          {"wrong", c.wrong},
          {"expected_exit_code", o.plan.exit_code},
          {"exit_code", state.outcome ? json(state.outcome->exit_code) : json()},
          {"state_digest", state.final_state ? json(state.final_state->state_digest) : json()},
          {"attempts", state.attempts.size()},
          {"restored", restored(o)},
          {"lost_steps", lost},
          {"submissions", o.submissions},
          {"wall_s", or_null(c.wall_s)},
          {"faults", dealt}};
}

}  // namespace

double percentile(std::vector<double> values, double part) {
  expects(!values.empty() && part > 0 && part <= 1, "a percentile is of something, and of a part of it");
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::ceil(part * static_cast<double>(values.size()))) - 1];
}

json report_json(const CampaignReport& report) {
  json cases = json::array(), times = json::object();
  for (const auto& c : report.cases) cases.push_back(case_json(c));
  for (const auto& [fault, seconds] : times_by_fault(report)) {
    times[fault] = {{"count", seconds.size()}};
    if (!seconds.empty())
      times[fault]["p50_s"] = or_null(percentile(seconds, 0.5)),
      times[fault]["p99_s"] = or_null(percentile(seconds, 0.99));
  }
  return {{"schema_version", 1},   {"campaign", report.name},   {"seed", report.seed},
          {"began", report.began}, {"passed", report.passed()}, {"cases", cases},
          {"times", times}};
}

std::string report_text(const CampaignReport& report) {
  const auto good = std::count_if(report.cases.begin(), report.cases.end(),
                                  [](const CaseReport& c) { return c.wrong.empty(); });
  std::size_t dealt = 0;
  for (const auto& c : report.cases) dealt += c.outcome.struck.size();
  const auto times = times_by_fault(report);
  std::string text = fmt::format(
      "# Drill: {}\n\n{} of {} cases as they must be; {} faults of {} types. Seed {}, begun {}.\n\n"
      "Times are seconds from the fault to the run's next new step, and their parts.\n\n"
      "| Case | Fault | Hits | At step | Detect | Decide | Launch | Restore | Step | Total | Attempts | "
      "Verdict |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      report.name, good, report.cases.size(), dealt, times.size(), report.seed, report.began);
  for (const auto& c : report.cases) {
    const auto splits = splits_of(c.outcome);
    const std::string verdict = c.wrong.empty() ? expectation(c.outcome.plan) : "**FAILED**";
    const std::string label = fmt::format("{} {}", c.outcome.plan.name, c.outcome.repetition);
    for (std::size_t i = 0; i < splits.size(); ++i) {
      const Struck& s = c.outcome.struck[i];
      const Split& p = splits[i];
      text += fmt::format(
          "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", i == 0 ? label : "",
          s.what.fault->name, whom(s.what), s.step, in_words(p.detect), in_words(p.decide),
          in_words(p.launch), in_words(p.restore), in_words(p.step), in_words(p.total),
          i == 0 ? std::to_string(c.outcome.last.state.attempts.size()) : "", i == 0 ? verdict : "");
    }
    if (splits.empty())
      text += fmt::format("| {} | – | – | – | – | – | – | – | – | – | – | {} |\n", label, verdict);
  }
  text += "\n| Fault | Times measured | p50 | p99 |\n|---|---|---|---|\n";
  for (const auto& [fault, seconds] : times)
    text += seconds.empty() ? fmt::format("| {} | 0 | – | – |\n", fault)
                            : fmt::format("| {} | {} | {:.2f} | {:.2f} |\n", fault, seconds.size(),
                                          percentile(seconds, 0.5), percentile(seconds, 0.99));
  for (const auto& c : report.cases) {
    if (c.wrong.empty()) continue;
    text += fmt::format("\n{} {} ({}):\n\n", c.outcome.plan.name, c.outcome.repetition, c.outcome.run);
    for (const auto& why : c.wrong) text += "- " + why + "\n";
  }
  return text;
}

}  // namespace holdfast::launcher
