#pragma once
// Two checkpoints compared: by their manifests alone, or value by value.
#include <string>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/io/whole_file.hpp"

namespace holdfast::checkpoint {

/// A field of facts or point, by name, with both values as text.
struct FactDifference {
  std::string name, before, after;
};

/// A tensor that both have under one name and that is not the same.
struct TensorDifference {
  std::string name;
  LogicalTensor before, after;
  bool comparable() const { return before == after; }  ///< one shape and type: the digests differ
};

struct Difference {
  std::vector<FactDifference> facts;
  std::vector<std::string> removed, added;  ///< tensors of the first only, of the second only
  std::vector<TensorDifference> changed;
  std::int64_t same = 0;  ///< tensors with one shape, type and digest
  /// Nothing is different in the state; facts may be (a run of another world can have the same state).
  bool same_state() const { return removed.empty() && added.empty() && changed.empty(); }
};

/// Pure: equal digests are equal tensors.
Difference diff(const Manifest& before, const Manifest& after);

/// Of one tensor: elements whose bits differ, and the largest differences of those. Relative to the larger
/// magnitude of the two. NaN against a number counts as a difference that is infinite.
struct ValueDifference {
  std::int64_t different = 0, elements = 0;
  double max_absolute = 0, max_relative = 0;
};
/// Reads both; every block is checked. `tensor` is in both with one shape and type. Throws Damaged, Error.
ValueDifference diff_values(const fs::path& before, const Manifest& before_manifest, const fs::path& after,
                            const Manifest& after_manifest, const std::string& tensor,
                            const CopyProgress& progress = {});

}  // namespace holdfast::checkpoint
