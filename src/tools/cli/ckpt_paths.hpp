#pragma once
// What users point at, and how numbers are told to them. `path` is a checkpoint, a folder of checkpoints or a
// run directory.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/index/lease.hpp"
#include "checkpoint/index/state_folder.hpp"
#include "src/base/clock.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::tool {

namespace fs = std::filesystem;

/// A path as a user types it, without a trailing slash.
fs::path clean(const fs::path& path);
/// The checkpoints folder that `path` is or has, or nothing when it is a checkpoint itself. Throws Error
/// (usage) when it is none of them.
std::optional<fs::path> folder_of(const fs::path& path);
/// The checkpoint that `path` is, or the newest sound one of that folder. Throws Error.
fs::path checkpoint_of(const fs::path& path);
/// The same, to be read, under a lease.
checkpoint::LeasedCheckpoint open_checkpoint(const fs::path& path);
/// The run directory that a checkpoints folder belongs to; nothing when it stands alone.
std::optional<RunDir> run_of(const fs::path& checkpoints);

/// The snapshots of a rank in the local level on this machine.
struct LocalCopy {
  std::string folder;
  int rank = 0;
  bool copy = false;  ///< kept for a partner
  checkpoint::StateOutline outline;
  int world() const { return outline.identity ? outline.identity->world : 0; }  ///< 0: none is sealed
};
struct LocalFolder {
  fs::path path;
  std::vector<LocalCopy> files;
};
/// The run's local level on this machine, if its folder is there. What are no snapshots of a trainer is left
/// out.
std::optional<LocalFolder> local_folder_of(const RunDir& run);

/// "2.10 GiB in 3.0 s (716.8 MiB/s)"
std::string rate_text(std::int64_t bytes, Clock::time_point begin);
/// When a checkpoint was committed, "2026-11-21T03:04:05Z"; "" when that is not on record (formats 1 to 4).
std::string committed_at(const fs::path& step_dir);

/// A bar on stderr for work that takes more than two seconds, on a terminal. Each call also lets Ctrl-C stop
/// the work (interrupt.hpp).
std::function<void(std::int64_t done, std::int64_t total)> bar(std::string what);

}  // namespace holdfast::tool
