#pragma once
// Where the PMIx servers of an attempt meet: it gathers what the ranks of each node publish at a fence, and
// when all have come, those that wait get all of it. Pure.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/control/message.hpp"

namespace holdfast::launcher {

class FenceHub {
 public:
  struct Complete {
    std::vector<int> nodes;  ///< that wait for the answer
    control::PmixFenced answer;
  };
  /// Forgets other attempts.
  void begin(int attempt);
  /// A node has come. It comes again with the same when it may have missed the answer, or others may have.
  std::optional<Complete> take(int node, control::PmixFence fence);

 private:
  struct Fence {
    std::map<int, std::string> published;  ///< by node
    std::set<int> waiting;
  };
  int attempt_ = 0;
  /// By set and number. Who comes to a fence of a set has had the answers up to the last but one.
  std::map<std::pair<std::string, std::int64_t>, Fence> fences_;
};

}  // namespace holdfast::launcher
