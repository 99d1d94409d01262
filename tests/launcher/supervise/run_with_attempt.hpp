#pragma once
// A run whose first attempt is live, as a value.
#include <string>
#include <vector>

#include "launcher/supervise/run_state.hpp"
#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher::test {

/// Three slots and two spares. Attempt 1 was planned at 1000, and is restored from step 10.
struct RunWithAttempt {
  RunWithAttempt() {
    AttemptRecord live;
    live.number = 1;
    live.planned_at = 1000;
    live.placement = {"n0", "n1", "n2"};
    live.restored = control::Restored{10, "fresh", "00", ""};
    state.attempts.push_back(live);
  }
  Roster roster = roster_of({});
  RunState state;
};

inline std::vector<std::string> kinds_of(const std::vector<Event>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) out.push_back(kind_of(event));
  return out;
}

}  // namespace holdfast::launcher::test
