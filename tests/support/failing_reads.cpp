// A library for LD_PRELOAD: calls that look at or read one path fail, as those of a file system that is ill.
// Root may read everything and disks are well, so a test cannot have these errors otherwise.
//
//   FAILING_PATH   the end of the path, "/step-00000100/manifest.json"
//   FAILING_ERRNO  the number
//   FAILING_HOW    "once", "ever", or for so many seconds from the first time on; of each process
//   FAILING_RANK   of MPI's ranks only this one; without it all
//   FAILING_CALL   "open" (and all that looks at a path), or "read": it can be opened, and not be read
//
// Only what reads: a file that is made or written under the name is let through.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace {

struct Plan {
  std::string path, how;
  int reason = 0;
  bool reads = false;
};

const Plan& plan() {
  static const Plan it = [] {
    const auto get = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value ? value : "");
    };
    const std::string rank = get("FAILING_RANK");
    if (!rank.empty() && rank != get("OMPI_COMM_WORLD_RANK")) return Plan{};
    return Plan{get("FAILING_PATH"), get("FAILING_HOW"), std::atoi(get("FAILING_ERRNO").c_str()),
                get("FAILING_CALL") == "read"};
  }();
  return it;
}

bool is_meant(const char* path) {
  return path && !plan().path.empty() && std::string_view(path).ends_with(plan().path);
}

/// Whether the next call about the path fails.
bool fails() {
  static std::mutex lock;
  static bool had = false;
  static std::chrono::steady_clock::time_point first;
  const std::scoped_lock hold(lock);
  if (!std::exchange(had, true))
    first = std::chrono::steady_clock::now();
  else if (plan().how == "once")
    return false;
  else if (plan().how != "ever" && std::chrono::steady_clock::now() - first >
                                       std::chrono::duration<double>(std::atof(plan().how.c_str())))
    return false;
  errno = plan().reason;
  return true;
}

/// A test sees that it was felt.
void say(const char* path) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const int reason = errno;
  const std::string line = "failing_reads: " + std::string(path) + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
  errno = reason;
}

bool fails(const char* path) {
  const bool does = !plan().reads && is_meant(path) && fails();
  if (does) say(path);
  return does;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::array<std::atomic<bool>, 65536> is_ill;  // by descriptor

int opened(int fd, const char* path) {
  if (fd < 0 || fd >= static_cast<int>(is_ill.size())) return fd;
  const bool ill = plan().reads && is_meant(path);
  is_ill[fd] = ill;
  if (ill) say(path);
  return fd;
}

bool read_fails(int fd) { return fd >= 0 && fd < static_cast<int>(is_ill.size()) && is_ill[fd] && fails(); }

bool only_reads(int flags) { return (flags & O_ACCMODE) == O_RDONLY && (flags & O_CREAT) == 0; }

template <class Open, class... At>
int open_with(Open open, int flags, mode_t mode, const char* path, At... at) {
  if (only_reads(flags) && fails(path)) return -1;
  return opened(open(at..., path, flags, mode), only_reads(flags) ? path : nullptr);
}

mode_t mode_in(int flags, va_list rest) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

}  // namespace

extern "C" {

#define MODE()                              \
  va_list rest;                             \
  va_start(rest, flags);                    \
  const mode_t mode = mode_in(flags, rest); \
  va_end(rest)

int open(const char* path, int flags, ...) {
  MODE();
  return open_with(real<int (*)(const char*, int, ...)>("open"), flags, mode, path);
}
int open64(const char* path, int flags, ...) {
  MODE();
  return open_with(real<int (*)(const char*, int, ...)>("open64"), flags, mode, path);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE();
  return open_with(real<int (*)(int, const char*, int, ...)>("openat"), flags, mode, path, folder);
}
int openat64(int folder, const char* path, int flags, ...) {
  MODE();
  return open_with(real<int (*)(int, const char*, int, ...)>("openat64"), flags, mode, path, folder);
}
DIR* opendir(const char* path) {
  return fails(path) ? nullptr : real<DIR* (*)(const char*)>("opendir")(path);
}

int stat(const char* path, struct stat* to) {
  return fails(path) ? -1 : real<int (*)(const char*, struct stat*)>("stat")(path, to);
}
int stat64(const char* path, struct stat64* to) {
  return fails(path) ? -1 : real<int (*)(const char*, struct stat64*)>("stat64")(path, to);
}
int lstat(const char* path, struct stat* to) {
  return fails(path) ? -1 : real<int (*)(const char*, struct stat*)>("lstat")(path, to);
}
int lstat64(const char* path, struct stat64* to) {
  return fails(path) ? -1 : real<int (*)(const char*, struct stat64*)>("lstat64")(path, to);
}
int fstatat(int folder, const char* path, struct stat* to, int flags) {
  return fails(path) ? -1
                     : real<int (*)(int, const char*, struct stat*, int)>("fstatat")(folder, path, to, flags);
}

ssize_t read(int fd, void* to, size_t bytes) {
  return read_fails(fd) ? -1 : real<ssize_t (*)(int, void*, size_t)>("read")(fd, to, bytes);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  return read_fails(fd) ? -1 : real<ssize_t (*)(int, void*, size_t, off_t)>("pread")(fd, to, bytes, offset);
}
ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) {
  return read_fails(fd) ? -1
                        : real<ssize_t (*)(int, void*, size_t, off64_t)>("pread64")(fd, to, bytes, offset);
}

// The same, as what is compiled with fortified headers calls them.
int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char* path, int flags) { return openat64(folder, path, flags); }
ssize_t __read_chk(int fd, void* to, size_t bytes, size_t) { return read(fd, to, bytes); }
ssize_t __pread_chk(int fd, void* to, size_t bytes, off_t offset, size_t) {
  return pread(fd, to, bytes, offset);
}
ssize_t __pread64_chk(int fd, void* to, size_t bytes, off64_t offset, size_t) {
  return pread64(fd, to, bytes, offset);
}
}
