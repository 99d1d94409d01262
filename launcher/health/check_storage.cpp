// check_folder() looks at the free space and, of a folder that nodes share, the type of its file system; then
// small files are timed, and, unless the check is to be fast, large writes and reads. If space or type cannot
// be read, that is the only finding, and a folder with little space is not filled.
//
// - time_small_files() does what the election and the event log do: create exclusively, write, sync, rename.
//   It also tries to create a file that exists; where that succeeds, two leaders could have one term.
// - time_disk() writes bytes that cannot be compressed, with O_DIRECT where there is one, counts the sync as
//   writing, reads back and compares. Its time limit is checked between blocks.
//
// Test files have random names, and Scratch removes them. A mount that hangs blocks the function that asks
// it: run_guarded() runs every check in a process of its own, with a deadline.
#include "launcher/health/check_storage.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
namespace fs = std::filesystem;

constexpr std::size_t block = 4 << 20;  ///< of one write, aligned
constexpr std::size_t alignment = 4096;
constexpr double slow_bytes_s = 50e6;  ///< no disk in use for training is slower
constexpr std::size_t small_files = 20;
constexpr Millis small_files_limit{1500};
constexpr double slow_small_file_s = 0.5;          ///< an event is synced before it is acted upon
constexpr double full = 0.05, almost_full = 0.01;  ///< parts that are free
constexpr double least_bytes = 1e9, least_files = 1e4;

struct FileSystem {
  std::int64_t type;
  const char* name;
  int others;  ///< 1: seen by other nodes; 0: not; -1: unknown
};
// Magic numbers of statfs(2) and of the file systems' own headers.
constexpr std::array file_systems = {
    FileSystem{0x0BD00BD0, "lustre", 1}, FileSystem{0x6969, "nfs", 1},
    FileSystem{0x47504653, "gpfs", 1},   FileSystem{0x19830326, "beegfs", 1},
    FileSystem{0x00C36400, "ceph", 1},   FileSystem{0xFF534D42, "cifs", 1},
    FileSystem{0xFE534D42, "smb2", 1},   FileSystem{0xAAD7AAEA, "panfs", 1},
    FileSystem{0x5346414F, "afs", 1},    FileSystem{0x7461636F, "ocfs2", 1},
    FileSystem{0x01161970, "gfs2", 1},   FileSystem{0x01021997, "9p", -1},
    FileSystem{0x65735546, "fuse", -1},  FileSystem{0x20030528, "orangefs", 1},
    FileSystem{0xEF53, "ext4", 0},       FileSystem{0x58465342, "xfs", 0},
    FileSystem{0x9123683E, "btrfs", 0},  FileSystem{0x2FC12FC1, "zfs", 0},
    FileSystem{0x01021994, "tmpfs", 0},  FileSystem{0x794C7630, "overlay", 0},
    FileSystem{0xF2F52010, "f2fs", 0},   FileSystem{0x858458F6, "ramfs", 0}};

const FileSystem* find_type(std::int64_t type) {
  const auto it = std::find_if(file_systems.begin(), file_systems.end(),
                               [&](const auto& row) { return row.type == type; });
  return it == file_systems.end() ? nullptr : &*it;
}

std::int64_t type_of(const fs::path& folder) {
  struct statfs facts {};
  if (::statfs(folder.c_str(), &facts) != 0)
    throw system_error("cannot read the state of " + folder.string(), errno);
  return static_cast<std::int64_t>(static_cast<std::uint32_t>(facts.f_type));
}

/// A file that the destructor removes. Its name is random, since other nodes use the same folder, and their
/// processes may have the same numbers.
class Scratch {
 public:
  explicit Scratch(const fs::path& folder) : path(folder / (".holdfast-doctor-" + random_name())) {}
  Scratch(const Scratch&) = delete;
  ~Scratch() { ::unlink(path.c_str()); }
  const fs::path path;

 private:
  static std::string random_name() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}", random(), random());
  }
};

using Block = std::unique_ptr<char, decltype(&std::free)>;
Block make_block() {
  Block memory(static_cast<char*>(std::aligned_alloc(alignment, block)), &std::free);
  if (!memory) throw Error(Exit::runtime, "cannot allocate a block to write");
  return memory;
}

/// Bytes that no file system can compress or deduplicate: every 64-bit word is different.
void fill(char* memory, std::uint64_t number) {
  std::uint64_t state = number * 0x9E3779B97F4A7C15u + 1;
  for (std::size_t i = 0; i < block; i += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(memory + i, &state, sizeof state);
  }
}

struct Rates {
  std::int64_t bytes = 0;
  double write_s = 0, read_s = 0;
  std::int64_t read_bytes = 0;
  bool direct = false, same = true;
};

files::Fd open_for_timing(const fs::path& path, int flags, bool& direct) {
  files::Fd fd = files::try_open(path, flags | O_DIRECT, files::for_owner);
  direct = static_cast<bool>(fd);
  return direct ? std::move(fd) : files::open(path, flags);  // tmpfs and some others have no O_DIRECT
}

Rates write_and_read(const fs::path& path, const SpeedPlan& plan) {
  Rates rates;
  const Block data = make_block(), back = make_block();
  {
    const auto fd = open_for_timing(path, O_CREAT | O_EXCL | O_WRONLY, rates.direct);
    double wrote = 0;
    const Deadline deadline = Deadline::in(plan.limit);
    while (rates.bytes < plan.bytes && !deadline.passed()) {
      fill(data.get(), static_cast<std::uint64_t>(rates.bytes));
      const auto begin = Clock::now();
      files::write_all(fd.get(), data.get(), block, static_cast<std::uint64_t>(rates.bytes), path);
      wrote += seconds_since(begin);
      rates.bytes += block;
    }
    const auto begin = Clock::now();
    files::sync(fd.get(), path);
    rates.write_s = wrote + seconds_since(begin);
  }
  bool direct = false;
  const auto fd = open_for_timing(path, O_RDONLY, direct);
  const Deadline deadline = Deadline::in(plan.limit);
  for (std::int64_t at = 0; at < rates.bytes && rates.same && !deadline.passed(); at += block) {
    const auto begin = Clock::now();
    std::size_t got = 0;
    while (got < block) {
      const ssize_t n = ::pread(fd.get(), back.get() + got, block - got, at + static_cast<off_t>(got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw system_error("cannot read " + path.string(), errno);
      if (n == 0) break;
      got += as_size(n);
    }
    rates.read_s += seconds_since(begin);
    fill(data.get(), static_cast<std::uint64_t>(at));
    rates.same = got == block && std::memcmp(data.get(), back.get(), block) == 0;
    rates.read_bytes += block;
  }
  return rates;
}

Finding cannot(const std::string& check, const fs::path& folder, const Error& error) {
  return {check, Fitness::critical,
          fmt::format("{}: {}{}", folder.string(), error.problem(),
                      error.why().empty() ? "" : " (" + error.why() + ")"),
          "May this user write there? Is the quota used up?"};
}

}  // namespace

SpaceFacts read_space(const fs::path& folder) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0)
    throw system_error("cannot read the state of " + folder.string(), errno);
  const double unit = static_cast<double>(facts.f_frsize);
  return {static_cast<double>(facts.f_blocks) * unit, static_cast<double>(facts.f_bavail) * unit,
          static_cast<double>(facts.f_files), static_cast<double>(facts.f_favail)};
}

Finding space_finding(const fs::path& folder, const SpaceFacts& facts) {
  std::string says = fmt::format("{} of {} free in {}", size_text(facts.free_bytes), size_text(facts.bytes),
                                 folder.string());
  const char* advice = "Remove old files (`holdfast ckpt ls` lists checkpoints), or ask for more";
  const bool few_files = facts.files > 0 && facts.free_files < least_files;
  if (few_files) says += fmt::format(", {:.0f} inodes free", facts.free_files);
  if (facts.free_bytes < almost_full * facts.bytes || (facts.files > 0 && facts.free_files < 100))
    return {"disk.space", Fitness::critical, says, advice};
  if (facts.free_bytes < full * facts.bytes || facts.free_bytes < least_bytes || few_files)
    return {"disk.space", Fitness::warning, says, advice};
  return {"disk.space", Fitness::ok, says, ""};
}

std::string file_system_name(std::int64_t type) {
  const auto* row = find_type(type);
  return row != nullptr ? row->name : fmt::format("type {:#x}", type);
}

std::optional<bool> seen_by_others(std::int64_t type) {
  const auto* row = find_type(type);
  if (row == nullptr || row->others < 0) return std::nullopt;
  return row->others == 1;
}

Finding shared_finding(const fs::path& folder, std::int64_t type) {
  const std::string name = file_system_name(type);
  const auto others = seen_by_others(type);
  if (!others)
    return {"disk.shared", Fitness::unknown,
            folder.string() + " is on " + name + ", which may or may not be seen by other nodes",
            "In an allocation, `holdfast doctor --nodes --path` checks it"};
  if (*others) return {"disk.shared", Fitness::ok, folder.string() + " is on " + name, ""};
  return {"disk.shared", Fitness::unknown,
          folder.string() + " is on " + name + ", usually seen by this node alone",
          "In an allocation, `holdfast doctor --nodes --path` checks it"};
}

Finding check_shared_file(const fs::path& file) {
  const auto folder = file.parent_path().parent_path().string();
  std::error_code error;
  if (fs::exists(file, error)) return {"disk.seen", Fitness::ok, folder + " is seen by this node, too", ""};
  return {"disk.seen", Fitness::critical, folder + " is not the same folder on this node",
          "Is the shared file system mounted here?"};
}

Finding time_disk(const fs::path& folder, const SpeedPlan& plan) {
  const Scratch file(folder);
  Rates rates;
  try {
    rates = write_and_read(file.path, plan);
  } catch (const Error& error) {
    return cannot("disk.speed", folder, error);
  }
  if (!rates.same)
    return {"disk.speed", Fitness::critical, folder.string() + " returned other bytes than were written",
            "Do not use it for training; see the kernel's log"};
  const double write = static_cast<double>(rates.bytes) / std::max(rates.write_s, 1e-9);
  const double read = static_cast<double>(rates.read_bytes) / std::max(rates.read_s, 1e-9);
  const std::string says =
      fmt::format("{}: wrote {} at {}/s, read at {}/s{}", folder.string(), size_text(rates.bytes),
                  size_text(write), size_text(read), rates.direct ? "" : " (through the page cache)");
  if (write < slow_bytes_s)
    return {"disk.speed", Fitness::warning, says, "Is the disk failing, or very busy?"};
  return {"disk.speed", Fitness::ok, says, ""};
}

Finding time_small_files(const fs::path& folder) {
  const Scratch first(folder), renamed(folder);
  std::vector<double> times;
  bool exclusive = true;
  try {
    const Deadline deadline = Deadline::in(small_files_limit);
    while (times.size() < small_files && !deadline.passed()) {
      const auto begin = Clock::now();
      {
        const auto fd = files::open(first.path, O_CREAT | O_EXCL | O_WRONLY);
        files::append_all(fd.get(), "holdfast\n", first.path);
        files::sync(fd.get(), first.path);
      }
      if (files::try_open(first.path, O_CREAT | O_EXCL | O_WRONLY, files::for_owner)) exclusive = false;
      if (::rename(first.path.c_str(), renamed.path.c_str()) != 0)
        throw system_error("cannot rename " + first.path.string(), errno);
      times.push_back(seconds_since(begin));
    }
  } catch (const Error& error) {
    return cannot("disk.latency", folder, error);
  }
  if (!exclusive)
    return {"disk.latency", Fitness::critical,
            folder.string() + " allows exclusive creation of a file that exists",
            "Leaders are elected by such a file: choose another file system for run.dir"};
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  const double median = times[times.size() / 2];
  const std::string says =
      fmt::format("{}: a small file is synced and renamed in {:.1f} ms", folder.string(), median * 1e3);
  if (median > slow_small_file_s)
    return {"disk.latency", Fitness::warning, says, "Is the file system overloaded?"};
  return {"disk.latency", Fitness::ok, says, ""};
}

std::vector<Finding> check_folder(const fs::path& folder, Depth depth, bool shared) {
  std::vector<Finding> out;
  try {
    out.push_back(space_finding(folder, read_space(folder)));
    if (shared) out.push_back(shared_finding(folder, type_of(folder)));
  } catch (const Error& error) {
    return {cannot("disk.space", folder, error)};
  }
  out.push_back(time_small_files(folder));
  if (depth == Depth::fast) return out;
  SpeedPlan plan;
  if (depth == Depth::full) {
    plan.bytes *= 4;
    plan.limit *= 2;
  }
  // The last bytes of a disk, or of a file system in memory, are not used.
  if (read_space(folder).free_bytes < 4.0 * static_cast<double>(plan.bytes))
    out.push_back(
        {"disk.speed", Fitness::unknown, folder.string() + " has too little free space to be timed", ""});
  else
    out.push_back(time_disk(folder, plan));
  return out;
}

std::vector<fs::path> network_mounts(const Roots& roots) {
  static constexpr std::array types = {"nfs",  "nfs4", "lustre", "gpfs",   "beegfs",
                                       "ceph", "cifs", "smb3",   "wekafs", "panfs"};
  constexpr std::size_t max_mounts = 32;
  std::vector<fs::path> mounts;
  std::istringstream in(read_line(roots.proc / "mounts").value_or(""));
  for (std::string line; std::getline(in, line) && mounts.size() < max_mounts;) {
    std::istringstream fields(line);
    std::string device, mount, type;
    fields >> device >> mount >> type;
    // Spaces in names are written as \040; such a mount is rare and skipped.
    if (std::find(types.begin(), types.end(), type) != types.end() && mount.find('\\') == std::string::npos)
      mounts.emplace_back(mount);
  }
  return mounts;
}

Finding ask_mount(const fs::path& mount) {
  const auto begin = Clock::now();
  try {
    const auto type = type_of(mount);
    return {"mount", Fitness::ok,
            fmt::format("{} ({}) answers in {:.1f} ms", mount.string(), file_system_name(type),
                        seconds_since(begin) * 1e3),
            ""};
  } catch (const Error& error) {
    return {"mount", Fitness::critical, fmt::format("{}: {}", mount.string(), error.why()), "Mount it again"};
  }
}

}  // namespace holdfast::launcher
