#include "src/base/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast {
namespace {

constexpr Millis patience{200}, poll{10};

/// 0, or the errno of why there is no lock: EWOULDBLOCK when another process holds it.
int try_lock(const files::Fd& file, int how) {
  while (::flock(file.get(), how | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

Error cannot_lock(const RunDir& run, int error) {
  return system_error("cannot lock " + run.bare_lock().string(), error,
                      "Choose a run.dir on a file system with locks?");
}

bool has_no_locks(int error) { return error == ENOSYS || error == EOPNOTSUPP; }

}  // namespace

std::optional<files::Fd> lock_run(const RunDir& run) {
  files::Fd file = files::open(run.bare_lock(), O_RDWR | O_CREAT);
  for (const auto limit = Deadline::in(patience);;) {
    const int error = try_lock(file, LOCK_EX);
    if (error == 0) return file;
    if (error != EWOULDBLOCK) throw cannot_lock(run, error);
    if (limit.passed()) return std::nullopt;
    std::this_thread::sleep_for(poll);
  }
}

bool is_locked(const RunDir& run) {
  if (!files::exists_or_fail(run.bare_lock())) return false;
  const int error = try_lock(files::open(run.bare_lock(), O_RDONLY), LOCK_SH);
  if (error != 0 && error != EWOULDBLOCK && !has_no_locks(error)) throw cannot_lock(run, error);
  return error == EWOULDBLOCK;
}

}  // namespace holdfast
