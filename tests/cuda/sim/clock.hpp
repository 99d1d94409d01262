#pragma once
// Vector clocks: who knows of what.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace holdfast::cuda::sim {

/// One moment of one timeline (a stream or a thread of the host).
struct Epoch {
  std::uint32_t line = 0;
  std::uint64_t time = 0;  ///< 0: before everything
};

/// Everything that happened before.
class Clock {
 public:
  bool knows(Epoch e) const { return e.time <= (e.line < times_.size() ? times_[e.line] : 0); }
  void join(const Clock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }
  /// The next moment of `line`.
  Epoch tick(std::uint32_t line) {
    if (times_.size() <= line) times_.resize(line + 1);
    return {line, ++times_[line]};
  }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace holdfast::cuda::sim
