// The file has four parts, in this order: opening and reading, writing, folders and their rights, looks at
// paths and lists of folders.
//
// Opening goes through try_open(), which opens with O_NONBLOCK and then asks fstat() what it has opened:
// nothing is kept but a regular file, or a folder where one was asked for. EWOULDBLOCK alone makes it wait:
// an O_PATH descriptor holds the file, which is checked and then opened once more without O_NONBLOCK.
// create_exclusively() calls ::open itself: O_EXCL opens no file that is there already.
//
// A write goes on after EINTR and where it was short; what fails otherwise is an Error that says why.
// replace_atomically() removes the file aside when it fails; a create_exclusively() that fails leaves what it
// has written. In looks and lists only ENOENT and ENOTDIR mean "absent".
#include "src/base/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::files {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() { return std::exchange(fd_, -1); }

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

namespace {

int open_at_once(const fs::path& path, int flags, unsigned mode) {
  int fd = -1;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

/// False: the file is not what may be opened, and errno says so.
bool is_usable(int fd, int flags) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return false;
  if (S_ISREG(facts.st_mode) || (flags & O_DIRECTORY) != 0) return true;
  errno = S_ISDIR(facts.st_mode) ? EISDIR : ENXIO;
  return false;
}

/// To open a FIFO or a device may take as long as somebody else likes.
int open_unless_it_waits(const fs::path& path, int flags, unsigned mode) {
  const int fd = open_at_once(path, flags | O_NONBLOCK, mode);
  if (fd >= 0 || errno != EWOULDBLOCK) return fd;
  // A lease is taken back from its holder (fcntl(2)), or a file comes from an archive: the kernel has a limit
  // for the one, and the other is to be waited for. Under its name there may be something else by now.
  const Fd seen(open_at_once(path, O_PATH | (flags & O_NOFOLLOW), 0));
  if (!seen || !is_usable(seen.get(), flags)) return -1;
  return open_at_once(fmt::format("/proc/self/fd/{}", seen.get()), flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW),
                      mode);
}

std::string why_not_opened(const fs::path& path, int error) {
  std::error_code ignored;
  if (error == ELOOP && fs::is_symlink(path, ignored)) return "it is a symbolic link";
  if (error == ENXIO) return "it is not a regular file";
  return std::strerror(error);
}

/// As many bytes from `begin` on as there are, but no more than that.
std::string read_from(const Fd& fd, std::uint64_t begin, std::uint64_t bytes, const fs::path& path) {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t n = ::pread(fd.get(), text.data() + have, bytes - have, static_cast<off_t>(begin + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot read " + path.string(), errno);
    if (n == 0) break;
    have += as_size(n);
  }
  text.resize(have);
  return text;
}

std::uint64_t size_of(const Fd& fd, const fs::path& path) {
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) throw system_error("cannot read " + path.string(), errno);
  return static_cast<std::uint64_t>(facts.st_size);
}

}  // namespace

Fd try_open(const fs::path& path, int flags, unsigned mode) {
  if ((flags & O_ACCMODE) != O_RDONLY) flags |= O_NOFOLLOW;
  Fd fd(open_unless_it_waits(path, flags, mode));
  if (!fd) return fd;
  if (is_usable(fd.get(), flags)) {
    ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
    return fd;
  }
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

Fd open(const fs::path& path, int flags, unsigned mode) {
  Fd fd = try_open(path, flags, mode);
  if (!fd) throw Error(Exit::runtime, "cannot open " + path.string(), why_not_opened(path, errno));
  return fd;
}

std::string read_text(const fs::path& path, const Reading& how) {
  const Fd fd = open(path, O_RDONLY | (how.links ? 0 : O_NOFOLLOW));
  const auto check = [&](std::uint64_t bytes) {
    if (bytes > how.limit)
      throw Error(Exit::runtime, "cannot read " + path.string(),
                  fmt::format("it has more than {} bytes", how.limit));
  };
  check(size_of(fd, path));
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot read " + path.string(), errno);
    if (n == 0) return text;
    check(text.size() + as_size(n));
    text.append(buffer, as_size(n));
  }
}

std::string read_part(const fs::path& path, std::uint64_t begin, std::uint64_t bytes) {
  const Fd fd = open(path, O_RDONLY);
  const std::uint64_t size = size_of(fd, path);
  return read_from(fd, begin, std::min({bytes, size - std::min(begin, size), read_limit}), path);
}

std::string read_end(const fs::path& path, std::uint64_t bytes) {
  const Fd fd = open(path, O_RDONLY);
  const std::uint64_t size = size_of(fd, path), wanted = std::min({bytes, size, read_limit});
  return read_from(fd, size - wanted, wanted, path);
}

void write_all(int fd, const void* data, std::size_t bytes, std::uint64_t offset, const fs::path& path) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw system_error("cannot write " + path.string(), n == 0 ? EIO : errno);
    at += n;
    bytes -= as_size(n);
    offset += static_cast<std::uint64_t>(n);
  }
}

void append_all(int fd, std::string_view text, const fs::path& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw system_error("cannot write " + path.string(), n == 0 ? EIO : errno);
    text.remove_prefix(as_size(n));
  }
}

int reserve(int fd, std::int64_t bytes) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = ::posix_fallocate(fd, 0, bytes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void sync(int fd, const fs::path& path) {
  if (::fsync(fd) != 0) throw system_error("cannot sync " + path.string(), errno);
}

void sync_folder(const fs::path& folder) {
  const Fd fd = open(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw system_error("cannot sync " + folder.string(), errno);
}

fs::path name_aside(const fs::path& path) {
  fs::path aside = path;
  aside += fmt::format(".tmp-{:08x}", std::random_device{}());
  return aside;
}

void replace_atomically(const fs::path& path, std::string_view text, unsigned mode) {
  const fs::path aside = name_aside(path);
  try {
    const Fd fd = open(aside, O_WRONLY | O_CREAT | O_EXCL, mode);
    append_all(fd.get(), text, aside);
    sync(fd.get(), aside);
    if (::rename(aside.c_str(), path.c_str()) != 0)
      throw system_error("cannot rename " + aside.string(), errno);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

bool create_exclusively(const fs::path& path, std::string_view text, unsigned mode) {
  const Fd fd(open_at_once(path, O_WRONLY | O_CREAT | O_EXCL, mode));
  if (!fd && errno == EEXIST) return false;
  if (!fd) throw system_error("cannot create " + path.string(), errno);
  try {
    append_all(fd.get(), text, path);
    sync(fd.get(), path);
  } catch (const Error&) {
    ::unlink(path.c_str());  // nobody else would, and its name would be taken
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
  return true;
}

bool on_node(const fs::path& path) {
  struct statfs facts {};
  if (::statfs(path.c_str(), &facts) != 0) return false;
  // Magic numbers of linux/magic.h, and those of XFS, ZFS and F2FS, which are not all in it everywhere.
  constexpr std::array<std::uint32_t, 10> on_this_node = {
      EXT4_SUPER_MAGIC,      0x58465342 /* XFS */,  BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
      RAMFS_MAGIC,           OVERLAYFS_SUPER_MAGIC, SQUASHFS_MAGIC,    0x2fc12fc1 /* ZFS */,
      0xf2f52010 /* F2FS */, EROFS_SUPER_MAGIC_V1};
  return std::find(on_this_node.begin(), on_this_node.end(), static_cast<std::uint32_t>(facts.f_type)) !=
         on_this_node.end();
}

void close_folder(const fs::path& folder) {
  const mode_t mask = ::umask(077);
  ::umask(mask);
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0) throw system_error("cannot look at " + folder.string(), errno);
  const mode_t now = facts.st_mode & 07777, closed = now & (S_ISGID | (0750 & ~mask));
  // Not in vain: it would take the group's bit from a folder whose group is not the owner's.
  if (closed != now && ::chmod(folder.c_str(), closed) != 0)
    throw system_error("cannot make " + folder.string() + " private", errno);
}

namespace {
bool is_private(const struct stat& facts) {
  return S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() && (facts.st_mode & 077) == 0;
}
}  // namespace

void close_own_folder(const fs::path& folder) {
  const Fd fd = try_open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  struct stat facts {};
  if (!fd || ::fstat(fd.get(), &facts) != 0)
    throw Error(Exit::runtime, "cannot use the folder " + folder.string(), why_not_opened(folder, errno));
  if (facts.st_uid != ::geteuid())
    throw Error(Exit::runtime, "cannot use the folder " + folder.string(),
                fmt::format("it is another user's, of the number {}", facts.st_uid),
                "Choose another name, or ask that user to remove it?");
  close_folder(folder);
}

void make_private_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot make the folder " + folder.string(), errno,
                       "Is there a folder " + folder.parent_path().string() + ", and can you write to it?");
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) throw system_error("cannot look at " + folder.string(), errno);
  if (is_private(facts)) return;
  const bool own = facts.st_uid == ::geteuid();
  throw Error(Exit::runtime, "cannot use the folder " + folder.string(),
              fmt::format("it is not private: {} of user {} with mode {:04o}",
                          S_ISDIR(facts.st_mode)   ? "a folder"
                          : S_ISLNK(facts.st_mode) ? "a link"
                                                   : "a file",
                          facts.st_uid, facts.st_mode & 07777U),
              own ? "Remove it?" : "Ask that user or an administrator to remove it?");
}

bool is_private_folder(const fs::path& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && is_private(facts);
}

namespace {
Look look(int result) {
  if (result == 0) return {Presence::there};
  if (errno == ENOENT || errno == ENOTDIR) return {Presence::absent};
  return {Presence::unknown, errno};
}

bool known(const Look& look, const fs::path& path) {
  if (look.presence == Presence::unknown)
    throw Error(Exit::transient, "cannot look at " + path.string(), std::strerror(look.error));
  return look.presence == Presence::there;
}
}  // namespace

Look look_at(const fs::path& path) {
  struct stat facts {};
  return look(::stat(path.c_str(), &facts));
}

Look look_at_entry(const fs::path& path) {
  struct stat facts {};
  return look(::lstat(path.c_str(), &facts));
}

bool exists_or_fail(const fs::path& path) { return known(look_at(path), path); }
bool entry_exists_or_fail(const fs::path& path) { return known(look_at_entry(path), path); }
bool is_there(const fs::path& path) { return look_at(path).presence == Presence::there; }

namespace {
std::vector<std::string> names_in(const fs::path& folder, std::error_code& error) {
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
}  // namespace

std::vector<std::string> list_or_fail(const fs::path& folder) {
  std::error_code error;
  auto names = names_in(folder, error);
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw Error(Exit::transient, "cannot list " + folder.string(), error.message());
  return names;
}

std::vector<std::string> list(const fs::path& folder) {
  std::error_code ignored;
  return names_in(folder, ignored);
}

}  // namespace holdfast::files
