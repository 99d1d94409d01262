#pragma once
// The authority on whether a checkpoint is good: every byte of it, and what generic HDF5 tools will see.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

struct Verified {
  std::vector<std::string> problems;  ///< one sentence each; empty: the checkpoint is good
  std::vector<std::string> remarks;   ///< one sentence each: what is not as it was written, and does no harm
  bool unreadable = false;  ///< something could not be read now: what is said of that proves no damage
  std::int64_t bytes = 0, blocks = 0;  ///< checked
  std::int64_t files = 0;              ///< checked, of another program; those have no blocks
};

/// Called now and then with bytes done and in total.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Manifest, sizes, records, every block, metadata extents, roots, index.h5, logical digests recomputed from
/// the data; then, in a child process (damaged HDF5 metadata can kill its reader), what HDF5 sees in each
/// file against the manifest. Of another program's files, every byte against their digests. Throws Error only
/// for a newer format; everything else that is wrong is a problem in the result.
Verified verify(const fs::path& step_dir, const Progress& progress = {});

}  // namespace holdfast::checkpoint
