#pragma once
// A synthetic run: its events, one after another, as a drill would see them.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/drill/fault_schedule.hpp"
#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher::test {

/// Four nodes: n1 and n2 train, n3 waits, n0 carries the batch script; two ranks a node.
inline Roster four_nodes() {
  Roster roster;
  roster.job = "7.0";
  for (const char* name : {"n0", "n1", "n2", "n3"}) roster.nodes.push_back({name, name, 1, "A"});
  roster.first_placement = {1, 2};
  roster.candidates = {0, 3, 1, 2};
  roster.batch_host = 0;
  roster.ranks_per_node = 2;
  return roster;
}

class SyntheticRun {
 public:
  SyntheticRun() { view.roster = four_nodes(); }

  RunView& event(double at, nlohmann::json event) {
    event["unix"] = at;
    view.events.push_back(entry(event));
    apply(view.state, view.events.back());
    view.now = at;
    return view;
  }
  RunView& at(double now, std::int64_t step) {
    view.now = now;
    view.step = step;
    return view;
  }
  void begins(double at) {
    event(at, {{"event", "leader_elected"}, {"node", "n0"}, {"job", "7.0"}, {"term", 1}});
    attempt(at, 1, {"n1", "n2"}, 0);
  }
  /// Planned at `at`, started 0.1 s later, up after 1 s, restored after 1.5 s, training after 2 s.
  void attempt(double at, int number, const std::vector<std::string>& placement, std::int64_t from) {
    event(at, {{"event", "attempt_planned"}, {"attempt", number}, {"placement", placement}});
    event(at + 0.1, {{"event", "attempt_started"}, {"attempt", number}});
    event(at + 1, {{"event", "placement_verified"}, {"attempt", number}});
    event(at + 1.5,
          {{"event", "restored"}, {"attempt", number}, {"step", from}, {"level", from ? "peer" : "fresh"}});
    event(at + 2, {{"event", "first_step"}, {"attempt", number}, {"step", from + 1}});
  }
  void ends(double at, int number, const std::string& cause, std::int64_t step) {
    event(at, {{"event", "attempt_ended"}, {"attempt", number}, {"cause", cause}, {"step", step}});
  }
  void finishes(double at, int number, std::int64_t step, const std::string& digest) {
    event(at, {{"event", "final_state"}, {"step", step}, {"loss", 1.5}, {"state_digest", digest}});
    ends(at, number, "finished", step);
    event(at, {{"event", "run_finished"}, {"exit_code", 0}, {"status", "done"}});
    view.step = step;
  }

  RunView view;
};

inline DrillCase case_of(const std::vector<std::string>& faults) {
  DrillCase c;
  c.name = "case";
  c.limit_s = 100;
  for (const auto& words : faults) c.faults.push_back(read_fault(words, "here"));
  return c;
}

}  // namespace holdfast::launcher::test
