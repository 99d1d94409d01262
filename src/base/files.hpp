#pragma once
// The one way to open files, and those that must survive a crash: written aside, synced, renamed, and the
// folder synced.
//
// In a run directory, in /tmp and wherever else a person or an archive puts files, a name may be that of a
// link, a FIFO, a device or a file without an end. So open() takes regular files alone and waits for no other
// process, follows no link to write, and what is read whole has a limit. Files of the kernel in /proc and
// /sys are regular files; its devices are opened where they are read.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::files {

namespace fs = std::filesystem;

/// An open file descriptor; closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

/// Modes of new files, before the umask takes from them.
constexpr unsigned for_owner = 0600, for_group = 0640;

/// Opens a regular file, or with O_DIRECTORY a folder, with O_CLOEXEC; an Error (runtime) names the path and
/// says why not. Never waits for a reader or writer. O_NOFOLLOW goes without saying unless the file is only
/// read.
Fd open(const fs::path& path, int flags, unsigned mode = for_group);
/// The same without an Error: nothing, and errno says why; ENXIO: it is neither a regular file nor a folder.
Fd try_open(const fs::path& path, int flags, unsigned mode = for_group);
/// Bytes of the largest file that is read whole, unless its reader says something else.
constexpr std::uint64_t read_limit = 1 << 30, no_limit = ~std::uint64_t{0};
struct Reading {
  std::uint64_t limit = read_limit;  ///< bytes; an Error (runtime) beyond
  bool links = true;                 ///< a symbolic link is followed; else it is an Error (runtime)
};
std::string read_text(const fs::path& path, const Reading& how = {});
/// At most `bytes` bytes (no more than read_limit) from `begin` on; fewer at the file's end.
std::string read_part(const fs::path& path, std::uint64_t begin, std::uint64_t bytes);
/// The last `bytes` of a file, or all of it.
std::string read_end(const fs::path& path, std::uint64_t bytes);
/// Writes all bytes at `offset`; an Error on a short write, ENOSPC included.
void write_all(int fd, const void* data, std::size_t bytes, std::uint64_t offset,
               const fs::path& path_for_message);
void append_all(int fd, std::string_view text, const fs::path& path_for_message);
/// Room for all bytes of a file, zeroes. Returns 0 or an errno; never EINTR, since signals wait meanwhile:
/// where they come faster than a large file gets its room, it would never have it.
int reserve(int fd, std::int64_t bytes);
void sync(int fd, const fs::path& path_for_message);
/// Where the file system knows no fsync of folders (EINVAL), there is nothing to do.
void sync_folder(const fs::path& folder);
/// A name beside `path` for what will be renamed to it. Another process, on another node too and perhaps with
/// our number, may be about to write the same file: neither ever sees a part of what the other one writes.
fs::path name_aside(const fs::path& path);
/// Writes a file beside `path`, fsync, rename over `path`, fsync the folder: readers see the old text or the
/// new one.
void replace_atomically(const fs::path& path, std::string_view text, unsigned mode = for_group);
/// Creates the file if and only if it does not exist (O_EXCL), fsyncs file and folder; false when it already
/// exists. What cannot be written is removed again.
bool create_exclusively(const fs::path& path, std::string_view text, unsigned mode = for_group);
/// Takes from a folder whatever others may do with it, what its group may beside reading, and what the umask
/// would take from a new one. Nobody gains a right.
void close_folder(const fs::path& folder);
/// Creates a folder that is this user's alone (0700), or takes one that is. Where other users can write, as
/// in /tmp and /dev/shm, they may have made the name before: a link, a folder of somebody else, or one that
/// others can enter is an Error (runtime), which says whose it is.
void make_private_folder(const fs::path& folder);
/// close_folder() of a folder that is this user's own: one of somebody else, and a link, is an Error
/// (runtime).
void close_own_folder(const fs::path& folder);
/// It is this user's own folder, which no other user can enter; a link to one is not.
bool is_private_folder(const fs::path& path);
/// A look at a path has three answers: what cannot be looked at may be there, and may come back.
enum class Presence { there, absent, unknown };
struct Look {
  Presence presence = Presence::unknown;
  int error = 0;  ///< an errno, where it is unknown
};
/// What the path leads to, through symbolic links. Absent: it, or a folder on the way to it, does not exist.
Look look_at(const fs::path& path);
/// The same of the entry itself, which may be a link.
Look look_at_entry(const fs::path& path);
/// Error (transient) where it is unknown: for whoever would do harm by taking it for absent.
bool exists_or_fail(const fs::path& path);
bool entry_exists_or_fail(const fs::path& path);
/// False also for what cannot be looked at: for hints, and where nothing is lost by a wrong answer.
bool is_there(const fs::path& path);
/// It lies on a file system of this node's own (a disk, memory): neither on one of a network nor on one that
/// a process offers (FUSE). False also for what cannot be looked at.
bool on_node(const fs::path& path);
/// Names (not paths) in a folder, sorted; empty when the folder does not exist. Throws Error (transient) when
/// it cannot be listed to its end: what is not seen may be there.
std::vector<std::string> list_or_fail(const fs::path& folder);
/// The same, with what could be seen instead of an error: for what the kernel shows (/proc, /sys), and for
/// hints.
std::vector<std::string> list(const fs::path& folder);

}  // namespace holdfast::files
