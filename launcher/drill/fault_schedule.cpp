// due() is asked with every new view of the run. It names the faults whose time is over, to be undone, and
// then looks at the first fault that was not injected yet: is_due() compares its time, step or phase with the
// view, and choose_target() draws the nodes that it breaks. Where too few nodes fit, the fault waits for a
// later view. record() counts it as injected; until then due() names it again. After the run's outcome only
// undoing is due, and missed() has the faults that are left.
//
// In a soak the next fault also waits until all earlier ones were undone, the run has recovered and made the
// steps of the gap, and a spare is free if the fault costs one.
//
// draw() depends on the seed and on the number of injected faults, so that asking more often changes no
// choice. A node is not chosen while a fault on it waits to be undone, nor after the minipod has broken it
// for ever.
#include "launcher/drill/fault_schedule.hpp"

#include <algorithm>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

constexpr double quiet_s = 3;  ///< soak: after a fault that changes nothing, until the next one

/// An event of this kind later than `since`.
bool happened(const RunView& view, std::string_view kind, double since) {
  return std::any_of(view.events.begin(), view.events.end(),
                     [&](const LogEntry& e) { return kind_of(e.event) == kind && e.envelope.unix > since; });
}

const std::vector<std::string>& placement_of(const RunView& view) {
  static const std::vector<std::string> none;
  return view.state.attempts.empty() ? none : view.state.attempts.back().placement;
}

bool in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The nodes that a fault may have as its target; none while they are unknown.
std::vector<std::string> candidates(Target target, const RunView& view,
                                    const std::vector<std::string>& broken) {
  if (!view.roster) return {};
  const Roster& roster = *view.roster;
  const std::string batch_host = roster.batch_host < 0 ? "" : roster.nodes[roster.batch_host].name;
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
        fits = !in(placed, name) && !view.state.lost.contains(name) && name != batch_host &&
               name != view.state.leader;
        break;
      case Target::promoted:
        fits = in(placed, name) && !before.empty() && !in(before, name);
        break;
      case Target::leader:
        fits = name == view.state.leader;
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
int free_spares(const RunView& view) { return static_cast<int>(candidates(Target::spare, view, {}).size()); }

}  // namespace

FaultSchedule::FaultSchedule(const DrillCase& plan, std::uint64_t seed) : plan_(plan), seed_(seed) {
  if (plan_.draw == 0) {
    faults_ = plan_.faults;
    return;
  }
  for (int i = 0; i < plan_.draw; ++i)
    faults_.push_back(
        plan_.faults[mix64(seed_ ^ mix64(static_cast<std::uint64_t>(i))) % plan_.faults.size()]);
}

std::uint64_t FaultSchedule::draw(std::uint64_t what) const {
  return mix64((seed_ + digest_stride * (injected_.size() + 1)) ^ mix64(what + digest_offset));
}

bool FaultSchedule::recovered(const RunView& view) const {
  if (injected_.empty()) return view.step > 0;
  const Injected& last = injected_.back();
  if (!view.state.attempt_live() || !view.state.attempts.back().first_step_at) return false;
  if (last.what.fault->effect == ExpectedEffect::takeover &&
      !happened(view, events::LeaderElected::about.kind, last.at))
    return false;
  if (last.what.fault->effect == ExpectedEffect::attempt)
    return happened(view, events::FirstStep::about.kind, last.at);
  return view.now > last.at + last.what.seconds + quiet_s;
}

bool FaultSchedule::is_due_in_soak(const PlannedFault& planned, const RunView& view) {
  if (std::any_of(injected_.begin(), injected_.end(), [](const Injected& s) { return !s.undone; }))
    return false;
  if (!recovered(view)) {
    recovered_since_.reset();
    return false;
  }
  if (!recovered_since_) recovered_since_ = view.step;
  const auto& [low, high] = plan_.gap;
  const auto gap = low + static_cast<std::int64_t>(draw(0) % static_cast<std::uint64_t>(high - low + 1));
  const int spares = !planned.fault->needs_spare ? 0 : planned.target == Target::two_active ? 2 : 1;
  return view.step >= *recovered_since_ + gap && free_spares(view) >= spares;
}

bool FaultSchedule::is_due(const PlannedFault& planned, const RunView& view) {
  if (plan_.draw > 0) return is_due_in_soak(planned, view);
  const When& when = planned.when;
  // Events before the last injection do not count.
  const double since = injected_.empty() ? 0 : injected_.back().at;
  switch (when.kind) {
    case When::Kind::step: {
      const auto& [low, high] = when.steps;
      return view.step >=
             low + static_cast<std::int64_t>(draw(0) % static_cast<std::uint64_t>(high - low + 1));
    }
    case When::Kind::after:
      if (!injected_.empty()) return view.now >= since + when.seconds;
      return std::any_of(view.events.begin(), view.events.end(), [&](const LogEntry& e) {
        return std::holds_alternative<events::FirstStep>(e.event) &&
               view.now >= e.envelope.unix + when.seconds;
      });
    case When::Kind::phase:
      if (when.phase == "saving") return view.saving;
      for (const auto& phase : phases())
        if (when.phase == phase.name) return happened(view, phase.event, since);
  }
  expects(false, "a phase of a drill file is a row of phases()");
  return false;
}

std::optional<ChosenFault> FaultSchedule::choose_target(const PlannedFault& planned,
                                                        const RunView& view) const {
  ChosenFault injection{planned.fault, false, {}, -1, planned.seconds, draw(2)};
  if (planned.target == Target::nothing) return injection;
  std::vector<std::string> broken;
  for (const auto& s : injected_)
    if (!s.undone || (s.what.fault->injector == Injector::minipod && s.what.seconds == 0))
      broken.insert(broken.end(), s.what.nodes.begin(), s.what.nodes.end());
  auto names = candidates(planned.target, view, broken);
  const std::size_t count = view.roster ? how_many(planned.target, *view.roster) : 1;
  if (names.size() < count) return std::nullopt;
  // Drawn without replacement, then put into the order of the roster.
  std::vector<std::string> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(draw(10 + i) % names.size());
    chosen.push_back(names[at]);
    names.erase(names.begin() + at);
  }
  for (const auto& node : view.roster->nodes)
    if (in(chosen, node.name)) injection.nodes.push_back(node.name);
  if (planned.target == Target::rank) {
    const auto& placed = placement_of(view);
    const auto slot = std::find(placed.begin(), placed.end(), injection.nodes.front()) - placed.begin();
    const auto per_node = static_cast<std::uint64_t>(view.roster->ranks_per_node);
    injection.rank = static_cast<int>(static_cast<std::uint64_t>(slot) * per_node + draw(1) % per_node);
  }
  return injection;
}

std::vector<ChosenFault> FaultSchedule::due(const RunView& view) {
  std::vector<ChosenFault> out;
  for (const auto& s : injected_) {
    if (s.undone || view.now < s.at + s.what.seconds) continue;
    ChosenFault back = s.what;
    back.undo = true;
    out.push_back(std::move(back));
  }
  if (injected_.size() >= faults_.size() || view.state.outcome) return out;
  const PlannedFault& next = faults_[injected_.size()];
  if (!is_due(next, view)) return out;
  if (auto injection = choose_target(next, view)) out.push_back(std::move(*injection));
  return out;
}

void FaultSchedule::record(const ChosenFault& injection, double at, const RunView& view) {
  if (!injection.undo) {
    const bool heals = injection.fault->undo[0] != '\0' && injection.seconds > 0;
    injected_.push_back({injection, at, view.step, !heals});
    recovered_since_.reset();
    return;
  }
  for (auto& s : injected_)
    if (!s.undone && s.what.fault == injection.fault && s.what.nodes == injection.nodes) {
      s.undone = true;
      return;
    }
  expects(false, "only an injected fault is undone");
}

bool FaultSchedule::over() const {
  return injected_.size() >= faults_.size() &&
         std::all_of(injected_.begin(), injected_.end(), [](const Injected& s) { return s.undone; });
}

std::vector<std::string> FaultSchedule::missed() const {
  std::vector<std::string> names;
  for (std::size_t i = injected_.size(); i < faults_.size(); ++i) names.emplace_back(faults_[i].fault->name);
  return names;
}

}  // namespace holdfast::launcher
