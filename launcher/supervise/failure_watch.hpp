#pragma once
// What may explain the end of an attempt: signs of nodes, ends of ranks, and a failure that waits for its
// diagnosis, because the end of a rank may be the first effect of the loss of its node. Pure.
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnose/diagnosis.hpp"
#include "launcher/supervise/policy.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// By which Xids attempts of this job have ended.
std::vector<PastXid> past_xids(const RunState& state, const Roster& roster);

/// All times are in seconds of one clock.
class FailureWatch {
 public:
  /// `names` of the nodes, for the texts.
  explicit FailureWatch(std::vector<std::string> names) : names_(std::move(names)) {}

  /// True: one of them is news, and not repeated by an agent that has connected again.
  bool take_signs(int node, const control::NodeSigns& what, double now);
  struct Ending {
    std::string why, sign;  ///< sign: "Xid 48", or its name
  };
  /// Why the node is to leave before its ranks end: its hardware fails for good. `past`: Xids of earlier
  /// attempts.
  std::optional<Ending> ends_node(int node, const std::vector<PastXid>& past = {}) const;
  /// The newest signs of a node that may explain what happens to this attempt, as evidence.
  std::vector<std::string> last_signs(int node, int attempt, double now) const;

  /// Keeps how a rank ended: the first report of each.
  void take_end(RankEnd end);
  bool any_end() const { return !ends_.empty(); }

  /// A failure waits for its diagnosis; a second one while it waits is kept as an end only.
  void suspect(Failure failure, double now);
  bool pending() const { return pending_.has_value(); }
  double pending_since() const { return pending_since_; }
  /// The failure that waits, with its culprit. Signs of nodes outside of `placement` (spares) explain
  /// nothing.
  Failure diagnosed(const std::vector<int>& placement, const std::vector<PastXid>& past = {}) const;

  void decided() { pending_.reset(); }  ///< the attempt has ended
  void new_attempt();
  void extend_deadlines(double seconds, double now);

 private:
  std::vector<std::string> names_;
  std::vector<SeenSign> signs_;  ///< of the last minutes; Xids of the whole job
  std::vector<RankEnd> ends_;    ///< of the attempt, in the order of their reports
  std::optional<Failure> pending_;
  double pending_since_ = 0;
};

}  // namespace holdfast::launcher
