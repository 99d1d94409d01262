// The calls about files that production code makes stand here before those of the C library, also for the C++
// library. Whoever does no simulated work is let through, and so is what lies in the memory of a node.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <string>
#include <string_view>

#include "src/base/as_size.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {
namespace {

/// The work that asks shared storage for the file, if it does.
Work* work_at(const char* path) {
  const auto [work, agent] = caller();
  if (agent && agent->storage.holds(path)) agent->own_thread_asks(path);
  return work && (path[0] != '/' || work->world.storage.holds(path)) ? work : nullptr;
}
Work* work_at(int fd) {
  Work* const work = caller().work;
  return work && !work->world.in_memory(fd) ? work : nullptr;
}

template <class Call>
long called(Work* work, Kind kind, Call call) {
  if (!work) return call();
  const Fate fate = work->world.fate_of_call(*work, kind);
  if (fate.error == 0) return call();
  if (fate.happens) call();
  errno = fate.error;
  return -1;
}

int open_file(int folder, const char* path, int flags, mode_t mode) {
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
  Work* const work = folder == AT_FDCWD ? work_at(path) : work_at(folder);
  const auto real = [&] {
    const int fd = static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
    if (fd < 0) return fd;
    if (work) work->world.opened(*work, fd, path, flags);
    if (caller().work) caller().work->world.lies_in_memory(fd, !work);
    return fd;
  };
  if (!work) return real();
  const Fate fate = work->world.fate_of_call(*work, changes ? Kind::change : Kind::look);
  if (fate.error == 0) return real();
  if (const int fd = fate.happens ? real() : -1; fd >= 0) ::close(fd);
  errno = fate.error;
  return -1;
}

int rename_file(const char* from, const char* to, unsigned flags) {
  Work* const work = work_at(to);
  return static_cast<int>(called(work, Kind::change, [&] {
    const long result = ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
    if (work && result == 0) work->world.renamed(*work, from, to);
    return result;
  }));
}

mode_t mode_in(int flags, va_list rest) { return (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0; }

}  // namespace
}  // namespace holdfast::sim

using holdfast::sim::called;
using holdfast::sim::Kind;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = holdfast::sim::mode_in(flags, rest);
  va_end(rest);
  return holdfast::sim::open_file(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = holdfast::sim::mode_in(flags, rest);
  va_end(rest);
  return holdfast::sim::open_file(folder, path, flags, mode);
}
int stat(const char* path, struct stat* to) noexcept {
  return static_cast<int>(called(holdfast::sim::work_at(path), Kind::look,
                                 [&] { return ::syscall(SYS_newfstatat, AT_FDCWD, path, to, 0); }));
}
int lstat(const char* path, struct stat* to) noexcept {
  return static_cast<int>(called(holdfast::sim::work_at(path), Kind::look, [&] {
    return ::syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
  }));
}
ssize_t read(int fd, void* to, size_t bytes) {
  holdfast::sim::Work* const work = holdfast::sim::work_at(fd);
  const ssize_t result = called(work, Kind::read, [&] { return ::syscall(SYS_read, fd, to, bytes); });
  if (work && work->strand) work->world.has_read(*work);
  return result;
}
ssize_t write(int fd, const void* from, size_t bytes) {
  using namespace holdfast::sim;
  Work* const work = work_at(fd);
  const auto real = [&](size_t count) {
    const ssize_t done = ::syscall(SYS_write, fd, from, count);
    if (work && done > 0) work->world.written(fd, {static_cast<const char*>(from), holdfast::as_size(done)});
    return done;
  };
  if (!work) return real(bytes);
  const Fate fate = work->world.fate_of_call(*work, Kind::write);
  if (fate.error == 0) return real(bytes);
  if (fate.happens) real(static_cast<size_t>(fate.part * static_cast<double>(bytes)));
  errno = fate.error;
  return -1;
}
int fsync(int fd) {
  holdfast::sim::Work* const work = holdfast::sim::work_at(fd);
  const int result = static_cast<int>(called(work, Kind::sync, [&] { return ::syscall(SYS_fsync, fd); }));
  if (work && result == 0) work->world.synced(*work, fd);
  return result;
}
int ftruncate(int fd, off_t size) noexcept {
  holdfast::sim::Work* const work = holdfast::sim::work_at(fd);
  return static_cast<int>(called(work, Kind::change, [&] {
    if (work) work->world.cut_off(fd);
    return ::syscall(SYS_ftruncate, fd, size);
  }));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(called(holdfast::sim::work_at(path), Kind::change,
                                 [&] { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); }));
}
int unlink(const char* path) noexcept {
  return static_cast<int>(called(holdfast::sim::work_at(path), Kind::change,
                                 [&] { return ::syscall(SYS_unlinkat, AT_FDCWD, path, 0); }));
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return static_cast<int>(called(holdfast::sim::work_at(folder), Kind::change,
                                 [&] { return ::syscall(SYS_unlinkat, folder, path, flags); }));
}
int rename(const char* from, const char* to) noexcept { return holdfast::sim::rename_file(from, to, 0); }
int renameat2(int, const char* from, int, const char* to, unsigned flags) noexcept {
  return holdfast::sim::rename_file(from, to, flags);
}
// The same, as what is compiled with fortified headers calls them.
int __open_2(const char* path, int flags) { return open(path, flags); }
int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }
ssize_t __read_chk(int fd, void* to, size_t bytes, size_t) { return read(fd, to, bytes); }
/// Names of files that are written aside have it in them.
pid_t getpid() noexcept {
  const holdfast::sim::Work* const work = holdfast::sim::caller().work;
  return work ? 10000 + work->process->node : static_cast<pid_t>(::syscall(SYS_getpid));
}
}
