#pragma once
// What a snapshot buffer of a local file offers to a restore, as ranks tell each other of it.
#include <compare>
#include <cstdint>
#include <set>

#include "checkpoint/index/state.hpp"

namespace holdfast::train {

/// A RunPoint, as ranks tell each other of it. Ordered by the life of the run: samples only ever grow, while
/// a rollback goes back in steps.
struct PointId {
  std::int64_t samples = 0, step = 0, tokens = 0;
  std::uint64_t memory = 0;  ///< hash of what detector and scaling remember
  auto operator<=>(const PointId&) const = default;
};
PointId id_of(const checkpoint::RunPoint& point);

/// A sealed snapshot buffer of a local file.
struct Offer {
  int reader = 0;     ///< the rank that reads the file for other nodes; those of its own node read it, too
  int of = 0;         ///< whose state
  bool copy = false;  ///< kept by a partner
  int buffer = 0;
  PointId point;
  std::uint64_t seal = 0;  ///< hash of its digests: equal state, equal seal
  std::set<int> bad;       ///< pieces that turned out damaged
  bool operator==(const Offer&) const = default;
};

}  // namespace holdfast::train
