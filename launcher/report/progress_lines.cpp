#include "launcher/report/progress_lines.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/report/event_words.hpp"
#include "src/base/printable.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher::report {
namespace {

using nlohmann::json;

constexpr double first_pause_s = 10, longest_pause_s = 600;
constexpr double pause_share = 0.1;  // of the time so far

/// Each of them is an ordinary part of a run's life, and the line of a step says it, too.
bool is_routine(const Event& event) {
  const auto* durable = std::get_if<events::CheckpointDurable>(&event);
  return durable && durable->note.empty();
}

}  // namespace

std::string step_in_words(const json& line, std::int64_t steps) {
  std::string out = fmt::format("step {}", typed<std::int64_t>(line, "step").value_or(0));
  if (steps > 0) out += fmt::format(" of {}", steps);
  if (const auto loss = typed<double>(line, "loss")) out += fmt::format(", loss {:.4f}", *loss);
  if (const auto rate = typed<double>(line, "tokens_per_s")) out += fmt::format(", {:.0f} tokens/s", *rate);
  if (const auto step_s = typed<double>(line, "step_s")) out += fmt::format(", {:.3g} s a step", *step_s);
  return out;
}

ProgressLines::Step ProgressLines::step_of(const std::optional<json>& line) {
  return line ? Step{typed<std::int64_t>(*line, "attempt").value_or(0),
                     typed<std::int64_t>(*line, "step").value_or(0)}
              : Step{};
}

ProgressLines::ProgressLines(const std::vector<LogEntry>& before, const std::optional<json>& last_step)
    : last_step_(step_of(last_step)) {
  for (const auto& [envelope, event] : before)
    told_[envelope.term] = std::max(told_[envelope.term], envelope.seq);
}

std::vector<std::string> ProgressLines::more(const std::vector<LogEntry>& events,
                                             const std::optional<json>& last_step, std::int64_t steps,
                                             double now) {
  std::vector<std::string> out;
  for (const auto& [envelope, event] : events) {
    if (envelope.seq <= told_[envelope.term]) continue;
    told_[envelope.term] = envelope.seq;
    if (const std::string words = in_words(event); !words.empty() && !is_routine(event))
      out.push_back(printable_line(words));
  }
  const double pause = std::clamp(pause_share * now, first_pause_s, longest_pause_s);
  if (last_step && step_of(last_step) != last_step_ && now - step_line_at_ >= pause) {
    last_step_ = step_of(last_step);
    step_line_at_ = now;
    out.push_back(step_in_words(*last_step, steps));
  }
  return out;
}

std::vector<std::string> summary_lines(const StatusFacts& f) {
  const RunState& s = f.state;
  std::vector<std::string> out = {fmt::format("summary of {}: {}", f.name, headline(f))};
  for (const auto& attempt : s.attempts) out.push_back("  attempt " + in_words(attempt));
  if (f.last_step) out.push_back("  last " + step_in_words(*f.last_step, f.steps.value_or(0)));
  if (s.durable_step >= 0) out.push_back(fmt::format("  newest durable checkpoint: step {}", s.durable_step));
  if (s.time.total() > 0)
    out.push_back(fmt::format("  goodput {:.1f} %; {}", 100 * s.time.goodput(), in_words(s.time)));
  if (s.final_state && !s.final_state->state_digest.empty())
    out.push_back("  state digest " + s.final_state->state_digest);
  std::ranges::transform(out, out.begin(), printable_line);
  return out;
}

std::string job_comment(const StatusFacts& f) {
  nlohmann::ordered_json out = {{"holdfast", 1}, {"run", f.name}};
  if (f.last_step) {
    out["step"] = typed<std::int64_t>(*f.last_step, "step").value_or(0);
    if (f.steps) out["of"] = *f.steps;
    if (const auto loss = typed<double>(*f.last_step, "loss"))
      out["loss"] = json_from(fmt::format("{:.4g}", *loss));
  }
  out["state"] = state_for_all(f);
  const RunState& s = f.state;
  // A cause is a word of ours (policy.hpp, signs.cpp); its evidence may be the program's.
  if (!s.attempts.empty() && s.attempts.back().ended_at && s.attempts.back().cause != "finished")
    out["cause"] = s.attempts.back().cause;
  if (s.outcome) out["exit_code"] = s.outcome->exit_code;
  return json_text(out);
}

bool may_replace_comment(const std::string& comment) {
  if (comment.empty()) return true;
  const json ours = json_from(comment);
  return ours.is_object() && ours.contains("holdfast");
}

}  // namespace holdfast::launcher::report
