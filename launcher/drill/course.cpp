#include "launcher/drill/course.hpp"

#include <algorithm>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
constexpr double quiet_s = 3;  ///< soak: after a fault that changes nothing, until the next one

/// An event of this name later than `since`.
bool happened(const View& view, std::string_view name, double since) {
  return std::any_of(view.events.begin(), view.events.end(),
                     [&](const json& e) { return e.value("event", "") == name && time_of(e) > since; });
}

const std::vector<std::string>& placement_of(const View& view) {
  static const std::vector<std::string> none;
  return view.state.attempts.empty() ? none : view.state.attempts.back().placement;
}

bool in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whom a fault may hit; nothing while it cannot be told.
std::vector<std::string> candidates(Target target, const View& view, const std::vector<std::string>& broken) {
  if (!view.roster) return {};
  const Roster& roster = *view.roster;
  const std::string batch_host =
      roster.batch_host < 0 ? "" : roster.nodes[static_cast<std::size_t>(roster.batch_host)].name;
  const auto& placed = placement_of(view);
  std::vector<std::string> before;
  if (view.state.attempts.size() > 1) before = view.state.attempts[view.state.attempts.size() - 2].placement;
  std::vector<std::string> out;
  for (const auto& node : roster.nodes) {
    const std::string& name = node.name;
    if (in(broken, name)) continue;
    bool fits = false;
    switch (target) {
      case Target::active:
      case Target::two_active:
      case Target::rank:
        fits = in(placed, name) && name != batch_host;
        break;
      case Target::spare:
        fits =
            !in(placed, name) && !view.state.lost.contains(name) && name != batch_host && name != view.leader;
        break;
      case Target::promoted:
        fits = in(placed, name) && !before.empty() && !in(before, name);
        break;
      case Target::leader:
        fits = name == view.leader;
        break;
      case Target::batch_host:
        fits = name == batch_host;
        break;
      case Target::half:
        fits = name != batch_host;
        break;
      case Target::every:
        fits = true;
        break;
      case Target::nothing:
        break;
    }
    if (fits) out.push_back(name);
  }
  return out;
}

std::size_t how_many(Target target, const Roster& roster) {
  if (target == Target::half) return roster.nodes.size() / 2;
  if (target == Target::every) return roster.nodes.size();
  return target == Target::two_active ? 2 : 1;
}

/// Nodes that could take a slot now.
int free_spares(const View& view) { return static_cast<int>(candidates(Target::spare, view, {}).size()); }

}  // namespace

Course::Course(const DrillCase& plan, std::uint64_t seed) : plan_(plan), seed_(seed) {
  if (plan_.draw == 0) {
    blows_ = plan_.blows;
    return;
  }
  for (int i = 0; i < plan_.draw; ++i)
    blows_.push_back(plan_.blows[mix64(seed_ ^ mix64(static_cast<std::uint64_t>(i))) % plan_.blows.size()]);
}

std::uint64_t Course::draw(std::uint64_t what) const {
  return mix64((seed_ + digest_stride * (struck_.size() + 1)) ^ mix64(what + digest_offset));
}

bool Course::recovered(const View& view) const {
  if (struck_.empty()) return view.step > 0;
  const Struck& last = struck_.back();
  if (!view.state.attempt_live() || !view.state.attempts.back().first_step_at) return false;
  if (last.what.fault->mark == Mark::takeover && !happened(view, "leader_elected", last.at)) return false;
  if (last.what.fault->mark == Mark::attempt) return happened(view, "first_step", last.at);
  return view.now > last.at + last.what.seconds + quiet_s;
}

bool Course::moment_in_soak(const PlannedFault& blow, const View& view) {
  if (std::any_of(struck_.begin(), struck_.end(), [](const Struck& s) { return !s.undone; })) return false;
  if (!recovered(view)) {
    calm_since_.reset();
    return false;
  }
  if (!calm_since_) calm_since_ = view.step;
  const auto& [low, high] = plan_.gap;
  const auto gap = low + static_cast<std::int64_t>(draw(0) % static_cast<std::uint64_t>(high - low + 1));
  const int spares = !blow.fault->needs_spare ? 0 : blow.target == Target::two_active ? 2 : 1;
  return view.step >= *calm_since_ + gap && free_spares(view) >= spares;
}

bool Course::moment_of(const PlannedFault& blow, const View& view) {
  if (plan_.draw > 0) return moment_in_soak(blow, view);
  const When& when = blow.when;
  // What happened before the last blow was the moment of that one.
  const double since = struck_.empty() ? 0 : struck_.back().at;
  switch (when.kind) {
    case When::Kind::step: {
      const auto& [low, high] = when.steps;
      return view.step >=
             low + static_cast<std::int64_t>(draw(0) % static_cast<std::uint64_t>(high - low + 1));
    }
    case When::Kind::after:
      if (!struck_.empty()) return view.now >= since + when.seconds;
      return std::any_of(view.events.begin(), view.events.end(), [&](const json& e) {
        return e.value("event", "") == "first_step" && view.now >= time_of(e) + when.seconds;
      });
    case When::Kind::phase:
      if (when.phase == "saving") return view.saving;
      for (const auto& phase : phases())
        if (when.phase == phase.name) return happened(view, phase.event, since);
  }
  expects(false, "a phase of a campaign is a row of phases()");
  return false;
}

std::optional<Strike> Course::aim(const PlannedFault& blow, const View& view) const {
  Strike strike{blow.fault, false, {}, -1, blow.seconds, draw(2)};
  if (blow.target == Target::nothing) return strike;
  std::vector<std::string> broken;
  for (const auto& s : struck_)
    if (!s.undone || (s.what.fault->hand == Hand::minipod && s.what.seconds == 0))
      broken.insert(broken.end(), s.what.nodes.begin(), s.what.nodes.end());
  auto names = candidates(blow.target, view, broken);
  const std::size_t count = view.roster ? how_many(blow.target, *view.roster) : 1;
  if (names.size() < count) return std::nullopt;
  // Drawn without replacement, then in the roster's order again.
  std::vector<std::string> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(draw(10 + i) % names.size());
    chosen.push_back(names[static_cast<std::size_t>(at)]);
    names.erase(names.begin() + at);
  }
  for (const auto& node : view.roster->nodes)
    if (in(chosen, node.name)) strike.nodes.push_back(node.name);
  if (blow.target == Target::rank) {
    const auto& placed = placement_of(view);
    const auto slot = std::find(placed.begin(), placed.end(), strike.nodes.front()) - placed.begin();
    const auto per_node = static_cast<std::uint64_t>(view.roster->ranks_per_node);
    strike.rank = static_cast<int>(static_cast<std::uint64_t>(slot) * per_node + draw(1) % per_node);
  }
  return strike;
}

std::vector<Strike> Course::due(const View& view) {
  std::vector<Strike> out;
  for (const auto& s : struck_) {
    if (s.undone || view.now < s.at + s.what.seconds) continue;
    Strike back = s.what;
    back.undo = true;
    out.push_back(std::move(back));
  }
  if (struck_.size() >= blows_.size() || view.state.verdict) return out;
  const PlannedFault& next = blows_[struck_.size()];
  if (!moment_of(next, view)) return out;
  if (auto strike = aim(next, view)) out.push_back(std::move(*strike));
  return out;
}

void Course::dealt(const Strike& strike, double at, const View& view) {
  if (!strike.undo) {
    const bool heals = strike.fault->undo[0] != '\0' && strike.seconds > 0;
    struck_.push_back({strike, at, view.step, !heals});
    calm_since_.reset();
    return;
  }
  for (auto& s : struck_)
    if (!s.undone && s.what.fault == strike.fault && s.what.nodes == strike.nodes) {
      s.undone = true;
      return;
    }
  expects(false, "what is undone was done");
}

bool Course::over() const {
  return struck_.size() >= blows_.size() &&
         std::all_of(struck_.begin(), struck_.end(), [](const Struck& s) { return s.undone; });
}

std::vector<std::string> Course::missed() const {
  std::vector<std::string> names;
  for (std::size_t i = struck_.size(); i < blows_.size(); ++i) names.emplace_back(blows_[i].fault->name);
  return names;
}

}  // namespace holdfast::launcher
