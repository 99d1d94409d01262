#pragma once
// The order of additions as data: terms come one after another and are added on a stack of sums, which is all
// that lanes and the tree above them need (numerics rules 2 and 3).
#include <algorithm>
#include <cstddef>
#include <span>

namespace holdfast {

/// What becomes of the next term.
struct Addition {
  bool begins = false;  ///< it is copied and is a new sum on top, since 0 + (-0) is not -0; else it is added
                        ///< to the top one
  int merges = 0;       ///< behind that, so many times: the two sums on top are added and are one
  bool operator==(const Addition&) const = default;
};

/// One pass over the terms takes no more of them, and holds no more sums of its own below the top one.
constexpr int terms_of_pass = 256, sums_of_pass = 12;

/// How many of the additions one pass takes.
inline std::size_t pass_of(std::span<const Addition> additions) {
  int below = -1;  // sums of this pass below the top one
  for (std::size_t i = 0; i < additions.size(); ++i) {
    if (i == terms_of_pass || (additions[i].begins && below == sums_of_pass)) return i;
    if (additions[i].begins)
      ++below;
    else
      below = std::max(below, 0);
    below = std::max(0, below - additions[i].merges);
  }
  return additions.size();
}

/// Sums on the stack behind the additions, where there were `before`.
inline int sums_behind(std::span<const Addition> additions, int before) {
  for (const Addition& a : additions) before += (a.begins ? 1 : 0) - a.merges;
  return before;
}

/// The most sums that must lie in memory: at the beginning, between passes and at the end.
inline int sums_in_memory(std::span<const Addition> additions, int before) {
  int most = before;
  while (!additions.empty()) {
    const std::size_t pass = pass_of(additions);
    before = sums_behind(additions.first(pass), before);
    most = std::max(most, before);
    additions = additions.subspan(pass);
  }
  return most;
}

}  // namespace holdfast
