#include "src/base/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace holdfast {
namespace {

constexpr int first_to_close = 3;

bool close_numbers(int first, unsigned last) {
  return ::syscall(SYS_close_range, static_cast<unsigned>(first), last, 0u) == 0;
}

/// The number of an entry of /proc/self/fd; -1: it has none.
int descriptor_named(const char* name) {
  int number = 0;
  for (; *name >= '0' && *name <= '9'; ++name) number = 10 * number + (*name - '0');
  return *name == 0 ? number : -1;
}

}  // namespace

void close_inherited(int kept) {
  kept = std::max(kept, first_to_close - 1);
  const bool below = kept == first_to_close - 1 || kept == first_to_close ||
                     close_numbers(first_to_close, static_cast<unsigned>(kept - 1));
  if (!below || !close_numbers(kept + 1, ~0u)) close_inherited_by_list(kept);
}

void close_inherited_by_list(int kept) {
  const int list = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) {  // there is no /proc
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = first_to_close; static_cast<rlim_t>(fd) < limit.rlim_cur; ++fd)
      if (fd != kept) ::close(fd);
    return;
  }
  alignas(dirent64) char entries[1024];
  for (long bytes = 0; (bytes = ::syscall(SYS_getdents64, list, entries, sizeof entries)) > 0;)
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      const int fd = descriptor_named(entry->d_name);
      if (fd >= first_to_close && fd != kept && fd != list) ::close(fd);
      at += entry->d_reclen;
    }
  ::close(list);
}

const rlimit& first_descriptor_limit() {
  static const rlimit first = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
  }();
  return first;
}

void raise_descriptor_limit() {
  rlimit limit = first_descriptor_limit();
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace holdfast
