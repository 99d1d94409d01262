#pragma once
// What the supervisor wants to be done. The leader carries actions out in their order; a Record must be on
// disk before the next one begins.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/record/events.hpp"
#include "launcher/supervise/restore_ladder.hpp"
#include "src/base/start_state.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::launcher {

struct Record {
  LogEntry entry;  ///< complete but for its number
};
struct ClearAll {
  int attempt;
};  ///< to every agent that can be reached
struct Launch {
  int attempt;
  std::vector<int> placement;  ///< slot -> node; the run may have shrunk: world = size * ranks_per_node
  StartState from = {};
};
struct FetchStates {
  int attempt;
  StateName state;
  std::vector<StateMove> moves;
};  ///< to the nodes that do not have the state of their ranks: answered by state_fetched()
struct TellRanks {
  control::Drain what;
};  ///< to every agent, for the ranks of the attempt
struct PauseRanks {
  bool on;
};  ///< to every agent, for the ranks of the attempt
struct DumpRank {
  int node, rank;
};  ///< to this agent: what is the rank doing? Answered by stacks()
struct CheckNodes {
  std::vector<int> nodes;
  bool numerics = true;
};  ///< to these agents: answered by node_health()
struct FinishRun {
  int exit_code;
};  ///< to every agent, after result.json
struct Resign {
  std::string why;
};  ///< this leader gives up
using Action = std::variant<Record, ClearAll, FetchStates, Launch, TellRanks, PauseRanks, DumpRank,
                            CheckNodes, FinishRun, Resign>;

}  // namespace holdfast::launcher
