#pragma once
// The shared file system, which alone decides conflicts: terms by O_EXCL, a journal per term, checkpoints,
// the result. It can be gone (each call fails) or hang (each call waits, and then works).
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "launcher/supervise/run_state.hpp"
#include "launcher/supervise/valid_events.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::sim {

struct SharedStorage {
  explicit SharedStorage(int nodes) : mounted(as_size(nodes), true), hung_until(as_size(nodes)) {}
  bool up = true;
  std::vector<bool> mounted;
  bool reachable(int node) const { return up && mounted[node]; }

  std::vector<double> hung_until;  ///< by node
  /// A call that a node begins now returns after so many seconds.
  double takes(int node, double now) const { return std::max(0.0, hung_until[node] - now); }
  void hang(int node, double until) { hung_until[node] = std::max(hung_until[node], until); }

  std::set<int> terms, renounced;
  int highest_taken() const { return terms.empty() ? 0 : *terms.rbegin(); }
  int highest() const {
    for (auto term = terms.rbegin(); term != terms.rend(); ++term)
      if (!renounced.contains(*term)) return *term;
    return 0;
  }

  std::map<int, std::vector<launcher::LogEntry>> journals;
  void write(int term, launcher::LogEntry entry) {
    auto& lines = journals[term];
    entry.envelope.term = term;
    entry.envelope.seq = static_cast<int>(lines.size()) + 1;
    lines.push_back(std::move(entry));
  }
  std::vector<launcher::LogEntry> events() const {
    std::vector<std::vector<launcher::LogEntry>> files;
    for (const auto& [term, lines] : journals) files.push_back(lines);
    return launcher::valid_events(std::move(files));
  }
  launcher::RunState replay() const {
    launcher::RunState state;
    for (const auto& entry : events()) launcher::apply(state, entry);
    return state;
  }

  struct Saved {
    int term = 0, attempt = 0;
    std::uint64_t digest = 0;
  };
  std::map<std::int64_t, Saved> checkpoints;  ///< committed
  struct Result {
    int term = 0;
    nlohmann::json json;
  };
  std::optional<Result> result;
};

}  // namespace holdfast::sim
