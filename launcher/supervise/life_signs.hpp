#pragma once
// Whether a node is lost. Its agent is silent; what else shows that the node lives?
//
// - Its ranks took part in a step that others have done: in a synchronous job none can be left behind. A step
//   shows only that the ranks lived when it began, and only once it is over: of steps that take longer than
//   the silence that is allowed, that sign is always too old.
// - Its kernel acknowledges what the leader sends, though the agent does not read it (TCP). That alone is a
//   sign only as long as another agent may need to come (guardian.cpp).
//
// This is one of five watches. Each has its own question, and nobody else answers it:
//
// - Is the node lost? The leader counts heartbeats of its agent (node_watch.hpp), and asks here.
// - Does a rank hang, or is it gone? The leader has its progress by the same heartbeats (hang_watch.hpp,
//   attempt_watch.hpp). Where a rank reports none, its agent tells what it sees from outside
//   (outside_watch.hpp).
// - Is the leader lost? Each agent hears its heartbeats (launcher/agent/leader/leadership_state.hpp).
// - Does the agent's loop stand still? Its guardian gets a signal twice a second (daemon/loop_watch.hpp).
// - Is an agent missing, so that SLURM has to start one? The job monitor keeps a connection to each
//   (launcher/job/agent_probe.hpp, step_watch.hpp), because there may be no leader. It loses no node.
//
// Pure.
#include <limits>
#include <string>

namespace holdfast::launcher {

/// An agent whose loop has stood still for so long is replaced by its guardian; its ranks go on.
inline constexpr double stuck_agent_s = 4;
/// An agent that was replaced is heard again after this time, or the node is lost.
inline constexpr double stuck_node_s = 2 * stuck_agent_s;
/// Without an agent ranks train, but their saves are not committed.
inline constexpr double unattended_node_s = 60;

/// When something last showed that a node lives, in seconds of one clock.
struct LifeSigns {
  static constexpr double never = -std::numeric_limits<double>::infinity();
  double agent = never;  ///< or since when its first heartbeat is waited for
  double ranks = never;
  double kernel = never;
};

/// Nothing has shown for `patience_s` that the node lives.
bool is_lost(const LifeSigns& signs, double now, double patience_s);
/// What else was seen of it since its agent was heard, for the evidence.
std::string says_of(const LifeSigns& signs, double now);

}  // namespace holdfast::launcher
