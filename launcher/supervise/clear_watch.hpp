#pragma once
// The nodes on which ranks of older attempts have not ended, after they were told to: one of them is to
// blame only where most of the others have ended theirs. Ranks that wait in the kernel, for a file system or
// a driver, cannot be killed; where half of the placement has such ranks, or more, it is not the nodes that
// are broken. Then the start waits for as long as the infrastructure may take. Pure.
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class ClearWatch {
 public:
  explicit ClearWatch(const config::Supervise& limits) : limits_(limits) {}

  enum class Finding {
    nothing,  ///< all have ended, or there is time left
    node,     ///< on fewer than half of the nodes, for supervise.clear_s: these nodes are to blame
    most,     ///< on half of the nodes or more, for supervise.clear_s: none is to blame
    overdue   ///< the same, and the time that the infrastructure may take is over
  };
  /// `uncleared` of `placed` nodes have ranks of older attempts, and all were told to end them at `told`.
  /// `spent_s`: of the infrastructure's time, by attempts before this one.
  Finding judge(int uncleared, int placed, double told, double spent_s, double now);
  /// Nothing was decided for so long.
  void extend_deadlines(double seconds, double now);

  void left(int node, const control::ProcessesLeft& what) { said_[node] = what; }
  /// What an agent said of them, after a colon; "": nothing.
  std::string why(int node, int attempt) const;

 private:
  config::Supervise limits_;
  double most_at_ = -std::numeric_limits<double>::infinity();  ///< when they were last half of all, or more
  std::map<int, control::ProcessesLeft> said_;
};

}  // namespace holdfast::launcher
