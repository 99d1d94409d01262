#pragma once
// Folders that a job will use: room, speed, whether other nodes see them, and whether they answer at all.
#include "launcher/health/look.hpp"

namespace holdfast::launcher {

struct SpaceFacts {
  double bytes = 0, free_bytes = 0;  ///< free: for this user
  double files = 0, free_files = 0;  ///< inodes; 0 of 0: the file system has no limit
};
/// Throws Error when the folder cannot be asked.
SpaceFacts read_space(const std::filesystem::path& folder);
Finding space_finding(const std::filesystem::path& folder, const SpaceFacts& facts);

/// What statfs calls a file system: "lustre", "nfs", "ext4", ...; "type 0x..." for one that is not in the
/// table.
std::string file_system_name(std::int64_t type);
/// Can other nodes see it, as far as its type tells? Nothing: the type does not tell (FUSE, an unknown one).
std::optional<bool> seen_by_others(std::int64_t type);
/// By the type of its file system; `--nodes` asks the other nodes themselves.
Finding shared_finding(const std::filesystem::path& folder, std::int64_t type);

/// Does this node see a file that another has made? Its folder's name is random, so that seeing it is proof.
Finding check_witness(const std::filesystem::path& file);

struct SpeedPlan {
  std::int64_t bytes = 64 << 20;          ///< at most
  std::chrono::milliseconds limit{1500};  ///< of writing; reading has the same
};
/// Writes a file past the page cache where the file system can (O_DIRECT), syncs it, reads it back, compares
/// and removes it. Wrong bytes are critical.
Finding time_disk(const std::filesystem::path& folder, const SpeedPlan& plan);
/// What agents and checkpoints rely on: a file is created exclusively, written, synced and renamed; the
/// median time.
Finding time_small_files(const std::filesystem::path& folder);

/// Room, small files and, unless fast, speed of one folder; of one that nodes should share also its type.
std::vector<Finding> check_folder(const std::filesystem::path& folder, Depth depth, bool shared);
/// Network file systems that are mounted, from /proc/mounts: where a hang would be.
std::vector<std::filesystem::path> network_mounts(const Roots& roots);
/// Asks a mount for its state: hangs where it hangs.
Finding ask_mount(const std::filesystem::path& mount);

}  // namespace holdfast::launcher
