#include "launcher/supervise/status_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace holdfast::launcher {
namespace {

using nlohmann::json;

std::string headline(const RunState& s) {
  if (s.verdict)
    return s.verdict->exit_code == 0
               ? "done"
               : fmt::format("{} (exit {}{}{})", s.verdict->status, s.verdict->exit_code,
                             s.verdict->why.empty() ? "" : ": ", s.verdict->why);
  if (s.attempts.empty()) return "waiting for nodes";
  const auto& a = s.attempts.back();
  if (a.ended_at) return "between attempts";
  if (a.first_step_at) return "training";
  return a.restored ? "restored, first step under way" : "starting ranks";
}

std::vector<std::string> spares(const StatusFacts& f) {
  std::vector<std::string> out;
  if (!f.roster) return out;
  const std::vector<std::string> placed =
      f.state.attempts.empty() ? std::vector<std::string>{} : f.state.attempts.back().placement;
  for (const auto& node : f.roster->nodes)
    if (std::find(placed.begin(), placed.end(), node.name) == placed.end() &&
        !f.state.lost.contains(node.name))
      out.push_back(node.name);
  return out;
}

std::string joined(const std::vector<std::string>& words, const char* none) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text.empty() ? none : text;
}

std::string in_words(const AttemptRecord& a) {
  if (!a.ended_at)
    return fmt::format(
        "  {:>3}  running{}\n", a.number,
        a.restored ? fmt::format(", from step {} ({})", a.restored->step, a.restored->level) : "");
  std::string text = fmt::format("  {:>3}  {} at step {}", a.number, a.cause, a.last_step);
  if (!a.node.empty()) text += " on " + a.node;
  if (a.cause != "finished") {
    text += fmt::format(", noticed after {:.1f} s", a.detected_s);
    if (a.recovered_s)
      text += fmt::format(", training again {:.1f} s later, {} step{} done again", *a.recovered_s,
                          a.lost_steps, a.lost_steps == 1 ? "" : "s");
  }
  return text + "\n";
}

}  // namespace

std::string status_text(const StatusFacts& f) {
  const RunState& s = f.state;
  std::string text = fmt::format("{}: {}\n", f.name, headline(s));
  if (f.last_step) {
    const json& m = *f.last_step;
    const json loss = m.value("loss", json());
    text +=
        fmt::format("step        {} of {}, loss {}, {:.0f} tokens/s\n", m.value("step", std::int64_t{0}),
                    f.steps, loss.is_number() ? fmt::format("{:.4f}", loss.get<double>()) : "not a number",
                    m.value("tokens_per_s", 0.0));
  }
  if (!s.attempts.empty())
    text += fmt::format("nodes       {}\n", joined(s.attempts.back().placement, "none"));
  if (f.roster) text += fmt::format("spares      {}\n", joined(spares(f), "none"));
  if (!s.lost.empty()) text += fmt::format("lost        {}\n", joined({s.lost.begin(), s.lost.end()}, ""));
  if (f.epoch > 0) text += fmt::format("leader      {}, epoch {}\n", f.leader, f.epoch);
  text += s.durable_step < 0 ? "checkpoint  none yet\n"
                             : fmt::format("checkpoint  step {} is durable\n", s.durable_step);
  if (!s.attempts.empty()) text += "attempts\n";
  for (const auto& a : s.attempts) text += in_words(a);
  if (s.final_state) text += fmt::format("digest      {}\n", s.final_state->state_digest);
  return text;
}

json status_json(const StatusFacts& f) {
  json j = result_of(f.state);
  j["name"] = f.name, j["state"] = headline(f.state), j["steps"] = f.steps;
  j["nodes"] = f.state.attempts.empty() ? std::vector<std::string>{} : f.state.attempts.back().placement;
  j["spares"] = spares(f), j["lost"] = f.state.lost;
  j["leader"] = f.leader, j["epoch"] = f.epoch;
  j["last_step"] = f.last_step ? *f.last_step : json(nullptr);
  return j;
}

}  // namespace holdfast::launcher
