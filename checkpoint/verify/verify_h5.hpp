#pragma once
// What generic HDF5 tools will see in a checkpoint, against its manifest. Internal to checkpoint/.
#include <string>
#include <vector>

#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

/// Opens each of `files` (names of shards, index.h5) with HDF5 and compares its datasets with the manifest.
/// In a child process: HDF5 can crash or hang on damaged metadata. One sentence per problem.
std::vector<std::string> problems_seen_by_hdf5(const fs::path& step_dir, const Manifest& manifest,
                                               const std::vector<std::string>& files);

}  // namespace holdfast::checkpoint
