#include "launcher/supervise/pace.hpp"

#include <algorithm>
#include <cmath>

#include "launcher/supervise/first_bounds.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using control::Phase;

constexpr double half_life = 100;                  // rounds after which a long one counts half
constexpr double too_short = 0.8, too_long = 1.5;  // of a recorded deadline, over the one that is known

/// Phases of a step recur and can be learned. Others happen once in an attempt, and their time depends on the
/// size of the state and the level that it comes from.
bool is_learned(Phase phase) {
  switch (phase) {
    case Phase::data:
    case Phase::forward:
    case Phase::backward:
    case Phase::collective:
    case Phase::optimizer:
    case Phase::checkpoint:
      return true;
    case Phase::starting:
    case Phase::restoring:
    case Phase::finishing:
    case Phase::paused:
      return false;
  }
  return false;
}

std::size_t index_of(Phase phase) { return as_size(phase); }

/// Does `waiting` have to wait for `other`?
bool holds_up(const StillRank& other, const StillRank& waiting) {
  if (other.rank == waiting.rank || other.phase == Phase::collective || other.step > waiting.step)
    return false;
  if (other.step < waiting.step || waiting.phase == Phase::collective) return true;
  return other.phase == Phase::checkpoint || other.phase == Phase::restoring ||
         other.phase == Phase::finishing || other.phase == Phase::paused;
}

}  // namespace

Pace::Pace(const config::Supervise& limits, int world, const RankWork& work)
    : limits_(limits),
      work_(work),
      enough_(std::int64_t{first_rounds} * world),
      fade_(std::exp2(-1 / (half_life * world))) {
  expects(world >= 1, "the world has at least one rank");
}

void Pace::left(Phase phase, double seconds) {
  if (is_learned(phase)) learn(phases_[index_of(phase)], seconds);
}

void Pace::stepped(double seconds) { learn(steps_, seconds); }

void Pace::learn(Learned& l, double seconds) {
  // The first rounds of an attempt are slow, and would hide a hang for many rounds after them.
  if (young(l)) {
    l.longest_young = std::max(l.longest_young, seconds);
    if (!known(l)) l.longest = std::max(l.longest, seconds);
  } else {
    l.longest = std::max(l.longest * fade_, seconds);
  }
  ++l.count;
  ++l.in_attempt;
}

double Pace::deadline_s(Phase phase) const {
  if (!is_learned(phase)) return first_bound_s(phase, work_, limits_);
  const Learned* l = &phases_[index_of(phase)];
  if (!known(*l) && phase != Phase::checkpoint) l = &steps_;
  if (!known(*l)) return first_bound_s(phase, work_, limits_);
  return std::min(
      static_cast<double>(limits_.step_s),
      young(*l) ? young_allowance * rule(std::max(l->longest, l->longest_young)) : rule(l->longest));
}

double Pace::rule(double seconds) const {
  return std::max(limits_.hang_factor * seconds, static_cast<double>(limits_.hang_floor_s));
}

void Pace::new_attempt() {
  for (Learned& l : phases_) l.in_attempt = 0;
  steps_.in_attempt = 0;
}

template <class Self, class Visit>
void Pace::each(Self& self, Visit visit) {
  for (std::size_t i = 0; i < self.phases_.size(); ++i) {
    const auto phase = static_cast<Phase>(i);
    if (is_learned(phase)) visit(control::name_of(phase), self.phases_[i]);
  }
  visit("step", self.steps_);
}

std::map<std::string, events::KnownPace> Pace::known() const {
  std::map<std::string, events::KnownPace> out;
  each(*this, [&](const char* name, const Learned& l) {
    if (known(l)) out[name] = {l.longest, l.longest_young};
  });
  return out;
}

bool Pace::is_news(const std::map<std::string, events::KnownPace>& recorded) const {
  const auto differs = [&](double is, double was) {
    const double right = std::min(rule(is), static_cast<double>(limits_.step_s)),
                 then = std::min(rule(was), static_cast<double>(limits_.step_s));
    return then < too_short * right || then > too_long * right;
  };
  if (!known(steps_)) return false;
  for (const auto& [name, now] : known()) {
    const auto then = recorded.find(name);
    if (then == recorded.end() || differs(now.longest, then->second.longest) ||
        differs(std::max(now.longest, now.first), std::max(then->second.longest, then->second.first)))
      return true;
  }
  return false;
}

void Pace::recall(const std::map<std::string, events::KnownPace>& recorded) {
  each(*this, [&](const char* name, Learned& l) {
    const auto found = recorded.find(name);
    if (found != recorded.end()) l = {enough_, 0, found->second.longest, found->second.first};
  });
}

void Pace::settled() {
  for (Learned& l : phases_) l.in_attempt = enough_;
  steps_.in_attempt = enough_;
}

std::optional<double> overdue(std::span<const StillRank> ranks, const Pace& pace) {
  std::optional<double> first;
  for (const StillRank& r : ranks) {
    const double deadline = pace.deadline_s(r.phase);
    if (r.still_s <= deadline || (first && *first <= deadline)) continue;
    const bool excused = std::any_of(ranks.begin(), ranks.end(), [&](const StillRank& other) {
      return holds_up(other, r) && other.still_s <= pace.deadline_s(other.phase);
    });
    if (!excused) first = deadline;
  }
  return first;
}

}  // namespace holdfast::launcher
