#pragma once
// Whether a node is lost. The silence of its agent opens the case; what else speaks for the node decides it.
//
//   its agent   sends heartbeats
//   its ranks   took part in a step that others have done: in a synchronous job none can be left behind
//   its kernel  acknowledges what the leader sends, though the agent does not read it (TCP)
//
// The kernel alone speaks for the node only as long as another agent may need to come (guardian.cpp). Pure.
#include <limits>
#include <string>

namespace holdfast::launcher {

/// An agent whose loop has stood still for so long is replaced by its guardian; its ranks go on.
inline constexpr double stuck_agent_s = 4;
/// An agent that was replaced is heard again after this time, or the node is lost.
inline constexpr double stuck_node_s = 2 * stuck_agent_s;
/// Without an agent ranks train, but their saves are not committed.
inline constexpr double unattended_node_s = 60;

/// When something last spoke for a node, in seconds of one clock.
struct LifeSigns {
  static constexpr double never = -std::numeric_limits<double>::infinity();
  double agent = never;  ///< or since when its first heartbeat is waited for
  double ranks = never;
  double kernel = never;
};

/// Nothing has spoken for the node for `patience_s`.
bool is_lost(const LifeSigns& signs, double now, double patience_s);
/// What else has spoken for it since its agent did, for the evidence.
std::string says_of(const LifeSigns& signs, double now);

}  // namespace holdfast::launcher
