#pragma once
// From which state in the memory of nodes the next attempt starts: programs with the client keep it in
// snapshot buffers (docs/protocol.md). Pure. The newest state that all ranks have comes first
// (snapshot::choose); where it cannot be had the next older one, and at last none: then the program starts
// from what it has on shared storage.
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/supervise/run_state.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// A sealed state of a rank, and a node that has it.
struct Holding {
  int node = -1;
  control::SealedState what;
};
struct StateMove {
  int rank = -1, from = -1, to = -1;
  bool operator==(const StateMove&) const = default;
};
struct StateChoice {
  StateName state;
  std::vector<StateMove> moves;  ///< for ranks whose node does not have their own
};
/// The newest state, of `at_least` or later, that every rank has on a node; nothing: there is none.
/// `placement`: slot -> node. `refused` are passed over, and so are those that would have to be moved to a
/// node of `full`.
std::optional<StateChoice> choose_state(const std::vector<Holding>& holdings,
                                        const std::vector<int>& placement, int ranks_per_node,
                                        std::int64_t at_least, const std::set<StateName>& refused,
                                        const std::set<int>& full = {});

class RestoreLadder {
 public:
  /// What a decision rests on.
  struct Facts {
    std::vector<int> placement;
    int ranks_per_node = 1;
    std::int64_t durable_step = -1;  ///< newest on shared storage that is not known to be damaged
    bool trusted = true;             ///< else no state in memory is
    double limit_s = 0;              ///< for moves
    double now = 0;
    std::set<StateName> refused = {};  ///< RunState::refused
  };

  /// Another attempt: nothing is known.
  void begin() { *this = {}; }
  /// What a node has; replaces what it has said before.
  void has(int node, std::vector<control::SealedState> sealed);
  void lost(int node);
  void extend_deadlines(double seconds) { since_ += seconds; }
  void fetched(int node, const control::StateFetched& what);

  /// There is nothing to choose from, or it is chosen and where it is needed.
  bool settled() const { return settled_ || (holdings_.empty() && note_.empty()); }
  /// Something was there, and the choice has not been recorded.
  bool news() const { return settled_ && !told_; }
  /// Once all nodes have said what they have: the moves that must be made now, if any.
  std::vector<StateMove> climb(const Facts& facts);
  /// None was chosen, since checkpoints are newer that have turned out to be damaged. Is there one after all,
  /// of what is known now? Then nothing is settled any more.
  bool reopen(const Facts& facts);
  bool reopened() const { return reopened_; }
  /// Of climb(): step -1: none.
  const StateName& state() const { return choice_.state; }
  const char* level() const;
  int moved() const { return static_cast<int>(choice_.moves.size()); }
  /// Why not a newer one; then the choice counts as recorded.
  std::string tell();

 private:
  std::optional<StateChoice> best(const Facts& facts) const;

  std::vector<Holding> holdings_;
  std::set<StateName> refused_;
  std::set<int> full_;  ///< nodes that cannot keep the state of a rank
  StateChoice choice_;
  std::set<int> awaited_;  ///< nodes that fetch
  double since_ = 0;
  bool settled_ = false, told_ = false, reopened_ = false;
  bool no_checkpoint_ = false;  ///< all of them are damaged
  std::string note_;
};

}  // namespace holdfast::launcher
