#pragma once
// Checks folders that a job will use: free space, speed, whether other nodes see them, and whether they
// answer at all.
#include "launcher/health/check_input.hpp"

namespace holdfast::launcher {

struct SpaceFacts {
  double bytes = 0, free_bytes = 0;  ///< free: for this user
  double files = 0, free_files = 0;  ///< inodes; 0 of 0: the file system has no limit
};
/// Throws Error when the file system does not answer.
SpaceFacts read_space(const std::filesystem::path& folder);
Finding space_finding(const std::filesystem::path& folder, const SpaceFacts& facts);

/// The name for a type of statfs: "lustre", "nfs", "ext4", ...; "type 0x..." for one that is not in the
/// table.
std::string file_system_name(std::int64_t type);
/// Can other nodes see a file system of this type? Nothing: unknown (FUSE, an unknown type).
std::optional<bool> seen_by_others(std::int64_t type);
/// Judges by the type of the file system; `--nodes` checks on the other nodes themselves.
Finding shared_finding(const std::filesystem::path& folder, std::int64_t type);

/// Does this node see a file that another node has created? The name of its folder is random.
Finding check_shared_file(const std::filesystem::path& file);

struct SpeedPlan {
  std::int64_t bytes = 64 << 20;          ///< at most
  std::chrono::milliseconds limit{1500};  ///< for writing, and the same for reading
};
/// Writes a file, without the page cache where the file system can (O_DIRECT), syncs it, reads it back,
/// compares and removes it. Wrong bytes are critical.
Finding time_disk(const std::filesystem::path& folder, const SpeedPlan& plan);
/// Tests what agents and checkpoints rely on: creates a file exclusively, writes, syncs and renames it, and
/// measures the median time.
Finding time_small_files(const std::filesystem::path& folder);

/// Checks free space, small files and, unless fast, speed of one folder; if nodes should share it, also its
/// type.
std::vector<Finding> check_folder(const std::filesystem::path& folder, Depth depth, bool shared);
/// The mounted network file systems, from /proc/mounts.
std::vector<std::filesystem::path> network_mounts(const Roots& roots);
/// Reads the state of a mount: hangs if the mount hangs.
Finding ask_mount(const std::filesystem::path& mount);

}  // namespace holdfast::launcher
