#pragma once
// Two operations that touch the same bytes, one of them writing, must be ordered by streams, events, words or
// the host. What is kept per byte is the last write and the reads since, one per timeline, as in FastTrack
// (Flanagan and Freund, 2009): whoever is ordered behind those is ordered behind everything older.
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/cuda/runtime/runtime.hpp"
#include "tests/cuda/sim/clock.hpp"

namespace holdfast::cuda::sim {

class RaceCheck {
 public:
  /// Who touches memory: an operation that runs now.
  struct Actor {
    Epoch epoch;
    const Clock* clock = nullptr;             ///< what happened before it
    std::shared_ptr<const std::string> name;  ///< "norm on stream 2"
  };
  /// Notes the accesses of one operation. Says what is wrong, if something is.
  std::optional<std::string> touch(const Actor& actor, const std::vector<Access>& accesses);
  /// The memory is somebody else's from now on.
  void forget(const void* data, std::int64_t bytes);
  /// Pieces of memory that are told apart.
  std::size_t segments() const { return segments_.size(); }

 private:
  struct Mark {
    Epoch epoch;
    std::shared_ptr<const std::string> name;
  };
  struct Segment {
    const std::byte* end = nullptr;
    Mark write;
    std::vector<Mark> reads;
  };
  using Segments = std::map<const std::byte*, Segment>;

  void split(const std::byte* at);
  std::optional<std::string> read(const Actor& actor, const std::byte* begin, const std::byte* end);
  std::optional<std::string> write(const Actor& actor, const std::byte* begin, const std::byte* end);

  Segments segments_;
};

}  // namespace holdfast::cuda::sim
