#pragma once
// Reading a checkpoint into any layout. Needs the manifest and the shard files, and no HDF5.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

struct Loaded {
  Manifest manifest;            ///< point, facts, digests, state_digest: what the state must turn out to be
  std::int64_t bytes_read = 0;  ///< from shard files, by this rank
};

/// Fills the memory of `into.pieces` from the checkpoint. Each block is checked before a byte of it is used.
/// Tensors are matched by name and shape; the checkpoint may hold more of them than `into`. Throws Damaged
/// (torn, truncated, altered, swapped or stale files: try the checkpoint before), Unreadable (a file is
/// missing or cannot be read now: ask again) or Error (a tensor is not in the checkpoint or has another
/// shape: another model). After a throw the memory of `into` is undefined. The caller compares
/// partial_digests(), summed over ranks, with manifest.digests.
Loaded load(const fs::path& step_dir, const State& into);
/// The same when the manifest has already been read, to look at its facts first.
Loaded load(const fs::path& step_dir, Manifest manifest, const State& into);

struct Salvaged {
  std::vector<bool> whole;  ///< one per piece of `into`: filled from sound blocks; the others are undefined
  std::vector<std::string> problems;  ///< what is damaged, one sentence each
  std::int64_t bytes_read = 0;
};
/// The same, but damage costs only the pieces that it touches: they can then be had from elsewhere, if
/// somebody holds the state of this very point. Throws as load() does, but never Damaged.
Salvaged salvage(const fs::path& step_dir, const Manifest& manifest, const State& into);

}  // namespace holdfast::checkpoint
