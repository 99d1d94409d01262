#pragma once
// Making ranks agree. When some do what may fail and the others wait: all go on, or all throw. Without it a
// failure on one rank leaves the others waiting until their time limit.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"

namespace holdfast::train {

/// A failure as everybody sees it: that of the lowest rank among those that failed worst.
struct Failure {
  std::uint64_t severity = 1;  ///< the caller's scale; the largest wins
  int rank = 0;
  std::string text;
};

/// Collective: what went wrong anywhere, or nothing. `mine` is this rank's failure.
std::optional<Failure> worst_failure(comm::Communicator& world, const std::optional<Failure>& mine);

/// Collective: a text of every rank, in their order. Two reductions, whatever the size of the world.
std::vector<std::string> texts_of_all(comm::Communicator& world, const std::string& mine);

/// What failed on another rank, which says it, too.
class OnAnotherRank : public Error {
 public:
  using Error::Error;
};

/// Collective: `work` where `mine` is set; then every rank returns, or the one that failed throws its own
/// error, and all others OnAnotherRank with its exit code.
void together(comm::Communicator& world, bool mine, const std::function<void()>& work);

}  // namespace holdfast::train
