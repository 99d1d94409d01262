// read_drill() refuses what stands in neither [drill] nor [[case]], reads [drill], and then case by case.
// Fields hands out the values of one table, each once; nothing_left() refuses what remains, so that a
// misspelled key is never ignored. read_fault() reads the words of a fault from left to right: its name, from
// which a target and a duration follow, then clauses that override these, or say when it is due.
//
// Everything that is wrong is an Error (usage) with its place in the file, from refuse(). Nothing is drawn
// here: ranges stay ranges, from which FaultSchedule chooses. Case names are unique and fit for a folder, the
// only phases are those of phases(), and a soak has no fault after which the run must stop.
#include "launcher/drill/drill_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "launcher/record/events.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using config::Entry;
using config::Value;

constexpr double longest_s = 86400;

[[noreturn]] void refuse(const std::string& where, const std::string& problem, const std::string& hint = {}) {
  throw Error(Exit::usage, problem, where, hint);
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

NumberRange range_in(std::string_view text, const std::string& where) {
  const auto dash = text.find('-');
  const auto low = number_in<std::int64_t>(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : number_in<std::int64_t>(text.substr(dash + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > 1000000000)
    refuse(where, fmt::format("'{}' is not a range of steps", text), "Write it as 30 or as 20-60?");
  return {*low, *high};
}

double seconds_in(std::string_view text, const std::string& where) {
  const auto value = number_in<double>(text);
  if (!value || !(*value >= 0) || *value > longest_s)
    refuse(where, fmt::format("'{}' is not a number of seconds", text),
           fmt::format("From 0 to {}", longest_s));
  return *value;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t", at)) != std::string_view::npos;) {
    const auto end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

template <class Names>
std::string did_you_mean(std::string_view typed, const Names& names) {
  const auto nearest = nearest_name(typed, names);
  return nearest.empty() ? fmt::format("There are {}", fmt::join(names, ", "))
                         : "Did you mean " + nearest + "?";
}

/// The values of one table, each taken once; what is left over is refused.
class Fields {
 public:
  Fields(const config::Document& document, const std::string& table, int element) : document_(document) {
    for (const auto& entry : document.entries)
      if (entry.table == table && entry.element == element) {
        if (entry.key.empty())
          line_ = entry.line;
        else
          entries_[entry.key] = &entry;
      }
  }
  int line() const { return line_; }
  std::string where() const { return document_.name + ":" + std::to_string(line_); }

  template <class T>
  std::optional<T> take(const std::string& key) {
    known_.push_back(key);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return std::nullopt;
    const Entry& entry = *at->second;
    entries_.erase(at);
    if constexpr (std::is_same_v<T, double>)
      if (const auto* whole = std::get_if<std::int64_t>(&entry.value)) return static_cast<double>(*whole);
    if (const auto* value = std::get_if<T>(&entry.value)) return *value;
    refuse(document_.where(entry), key + " has a value of the wrong type");
  }
  std::int64_t whole(const std::string& key, std::int64_t usual, std::int64_t low, std::int64_t high) {
    const auto value = take<std::int64_t>(key);
    if (value && (*value < low || *value > high))
      refuse(where(), fmt::format("{} = {} is out of range", key, *value),
             fmt::format("From {} to {}", low, high));
    return value.value_or(usual);
  }
  double seconds(const std::string& key, double usual) {
    const auto value = take<double>(key);
    if (value && !(*value > 0 && *value <= longest_s))
      refuse(where(), fmt::format("{} = {} is out of range", key, *value),
             fmt::format("Above 0, up to {}", longest_s));
    return value.value_or(usual);
  }
  void nothing_left() const {
    if (entries_.empty()) return;
    const auto& [key, entry] = *entries_.begin();
    refuse(document_.where(*entry), "unknown key " + key, did_you_mean(key, known_));
  }

 private:
  const config::Document& document_;
  std::map<std::string, const Entry*> entries_;
  std::vector<std::string> known_;
  int line_ = 0;
};

std::string usual_name(const DrillCase& c) {
  std::string name;
  for (const auto& planned : c.faults) name += (name.empty() ? "" : "+") + std::string(planned.fault->name);
  return name;
}

DrillCase read_case(const config::Document& document, int element, const DrillPlan& drill) {
  Fields fields(document, "case", element);
  DrillCase c;
  c.line = fields.line();
  const auto words = fields.take<std::vector<std::string>>("faults");
  if (!words || words->empty())
    refuse(fields.where(), "a case has no faults", "faults = [\"node_killed at step 30\"]");
  for (const auto& text : *words) c.faults.push_back(read_fault(text, fields.where()));
  c.name = fields.take<std::string>("name").value_or(usual_name(c));
  if (c.name.empty() ||
      c.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-") !=
          std::string::npos)
    refuse(fields.where(), "'" + c.name + "' cannot be the name of a case",
           "It names a folder: letters, digits, _ + -");
  c.set = fields.take<std::vector<std::string>>("set").value_or(std::vector<std::string>{});
  c.repeat = static_cast<int>(fields.whole("repeat", 1, 1, 1000));
  c.max_lost = static_cast<int>(fields.whole("max_lost", 1, 0, 1000000));
  c.draw = static_cast<int>(fields.whole("draw", 0, 0, 100000));
  c.limit_s = fields.seconds("limit_s", drill.limit_s);
  if (const auto gap = fields.take<std::string>("gap")) c.gap = range_in(*gap, fields.where());
  int stated = 0;
  for (const auto& planned : c.faults) stated = std::max(stated, planned.fault->exit_code);
  if (stated != 0 && c.draw > 0)
    refuse(fields.where(), "a soak cannot go on after a fault that must stop the run");
  c.exit_code = static_cast<int>(fields.whole("exit_code", stated, 0, 255));
  fields.nothing_left();
  return c;
}

}  // namespace

const std::vector<DrillPhase>& phases() {
  static const std::vector<DrillPhase> table = {
      {"planned",
       events::AttemptPlanned::about.kind},  // a placement is chosen, and old ranks are being ended
      {"starting", events::AttemptStarted::about.kind},      // ranks are being started
      {"restoring", events::PlacementVerified::about.kind},  // all ranks are up and load their state
      {"restored", events::Restored::about.kind},            // the ranks have their state
      {"recovered", events::FirstStep::about.kind},          // the ranks train again
      {"led", events::LeaderElected::about.kind},            // a leader has taken over
      {"saving", ""},                                        // a checkpoint is being written
  };
  return table;
}

PlannedFault read_fault(std::string_view text, const std::string& where) {
  const auto words = words_of(text);
  if (words.empty()) refuse(where, "a fault has no name");
  PlannedFault planned;
  planned.fault = fault_called(words[0]);
  if (!planned.fault)
    refuse(where, fmt::format("there is no fault '{}'", words[0]), did_you_mean(words[0], fault_names()));
  planned.target = planned.fault->target;
  planned.seconds = planned.fault->seconds;
  std::size_t at = 1;
  const auto next = [&](const char* what) {
    if (at >= words.size()) refuse(where, fmt::format("'{}' ends where {} should be", text, what));
    return words[at++];
  };
  const auto seconds = [&] {
    const double value = seconds_in(next("a number of seconds"), where);
    if (next("'s'") != "s") refuse(where, fmt::format("'{}': seconds are written as '5 s'", text));
    return value;
  };
  while (at < words.size()) {
    const auto word = words[at++];
    if (word == "at") {
      if (next("'step'") != "step") refuse(where, fmt::format("'{}': 'at' goes with 'step N'", text));
      planned.when.kind = When::Kind::step;
      planned.when.steps = range_in(next("a step"), where);
    } else if (word == "after") {
      planned.when.kind = When::Kind::after;
      planned.when.seconds = seconds();
    } else if (word == "when") {
      planned.when.kind = When::Kind::phase;
      planned.when.phase = next("a phase");
      std::vector<std::string> names;
      for (const auto& phase : phases()) names.emplace_back(phase.name);
      if (std::find(names.begin(), names.end(), planned.when.phase) == names.end())
        refuse(where, "there is no phase '" + planned.when.phase + "'",
               did_you_mean(planned.when.phase, names));
    } else if (word == "on") {
      const auto name = next("a target");
      const Target* target = target_called(name);
      if (!target)
        refuse(where, fmt::format("there is no target '{}'", name),
               "There are active, two_active, spare, promoted, leader, batch_host, half, every, rank");
      const bool of_rank = planned.fault->target == Target::rank,
                 whole = planned.fault->target == Target::nothing;
      if (whole || of_rank != (*target == Target::rank) || *target == Target::nothing)
        refuse(where, fmt::format("{} cannot have the target '{}'", planned.fault->name, name));
      planned.target = *target;
    } else if (word == "for") {
      planned.seconds = seconds();
    } else {
      refuse(where, fmt::format("'{}' is not understood at '{}'", text, word),
             "NAME, then: at step N-M, after S s, when PHASE, on TARGET, for S s");
    }
  }
  return planned;
}

DrillPlan read_drill(const config::Document& document) {
  for (const auto& entry : document.entries)
    if (!(entry.table == "drill" && entry.element < 0) && !(entry.table == "case" && entry.element >= 0))
      refuse(document.where(entry),
             entry.table.empty() ? "unknown key " + entry.key : "unknown table " + entry.table,
             "A drill file has [drill] and [[case]]");
  DrillPlan drill;
  Fields fields(document, "drill", -1);
  drill.name = fields.take<std::string>("name").value_or(drill.name);
  drill.job = fields.take<std::string>("job").value_or("");
  drill.seed = static_cast<std::uint64_t>(fields.whole("seed", 1, 0, INT64_MAX));
  drill.limit_s = fields.seconds("limit_s", drill.limit_s);
  drill.set = fields.take<std::vector<std::string>>("set").value_or(std::vector<std::string>{});
  fields.nothing_left();
  int count = 0;
  for (const auto& entry : document.entries)
    if (entry.table == "case") count = std::max(count, entry.element + 1);
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) {
    drill.cases.push_back(read_case(document, i, drill));
    if (!names.insert(drill.cases.back().name).second)
      refuse(document.name + ":" + std::to_string(drill.cases.back().line),
             "two cases are called " + drill.cases.back().name, "Give one of them another name?");
  }
  if (drill.cases.empty()) refuse(document.name, "a drill file has no [[case]]");
  return drill;
}

}  // namespace holdfast::launcher
