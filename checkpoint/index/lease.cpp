#include "checkpoint/index/lease.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::checkpoint {
namespace {

using std::chrono::seconds;

/// Who it is, for a person who looks.
std::string holder() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}\n", ::getpid(), host);
}

fs::path free_lease_path(const fs::path& checkpoints, std::int64_t step) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) throw system_error("no random number", errno);
  return checkpoints / print_name({Name::Kind::lease, step, {}, 0, number});
}

/// When the storage says that the file was last renewed; nothing: it is gone.
std::optional<double> renewed_at(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0)
    return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
  if (errno == ENOENT) return {};
  throw system_error("cannot look at " + path.string(), errno);
}

/// The time by the clock that stamps files here. Where the folder may not be touched it is when the folder
/// was last changed: then a lease seems younger than it is.
double storage_time(const fs::path& folder) {
  ::utimensat(AT_FDCWD, folder.c_str(), nullptr, 0);
  const auto now = renewed_at(folder);
  if (!now) throw Error(Exit::runtime, "cannot tell the time of " + folder.string(), "it is gone");
  return *now;
}

struct Leases {
  std::set<std::int64_t> held;  ///< steps
  std::vector<fs::path> expired;
};
Leases leases_in(const fs::path& checkpoints) {
  Leases out;
  std::optional<double> now;  // asked only where there are leases
  for (const std::string& text : entries_of(checkpoints)) {
    const Name name = parse_name(text);
    if (name.kind != Name::Kind::lease) continue;
    if (!now) now = storage_time(checkpoints);
    const auto renewed = renewed_at(checkpoints / text);
    if (!renewed) continue;
    if (*now - *renewed > std::chrono::duration<double>(lease_lasts).count())
      out.expired.push_back(checkpoints / text);
    else
      out.held.insert(name.step);
  }
  return out;
}

}  // namespace

void wait_for_retention(const fs::path& checkpoints, std::int64_t step) try {
  constexpr seconds patience{10};
  constexpr std::chrono::milliseconds pause{20};
  const fs::path step_dir = committed_path(checkpoints, step);
  for (const Deadline over = Deadline::in(patience);
       !over.passed() && files::is_there(step_dir) && has_trash(checkpoints, step);)
    std::this_thread::sleep_for(pause);
} catch (const Error&) {
  // What cannot be listed cannot be read either, and its reader says so.
}

/// Shared by the lease and its thread, which may outlive it on storage that hangs.
struct Lease::Renewal {
  fs::path path;
  std::chrono::milliseconds every;
  std::mutex mutex;
  std::condition_variable changed;
  bool given_back = false, over = false;

  void run() {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, every, [this] { return given_back; })) {
      lock.unlock();
      // It may have been swept away while this process stood still: then it is made again.
      if (::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0 && errno == ENOENT)
        files::try_open(path, O_WRONLY | O_CREAT, files::for_owner);
      lock.lock();
    }
    lock.unlock();
    ::unlink(path.c_str());
    lock.lock();
    over = true;
    changed.notify_all();
  }
};

Lease::Lease(const fs::path& step_dir, std::chrono::milliseconds renewed_every) {
  try {
    const fs::path folder = fs::absolute(step_dir).lexically_normal();
    const Name name = parse_name(folder.filename().string());
    if (name.kind != Name::Kind::committed) return;
    auto renewal = std::make_shared<Renewal>();
    renewal->path = free_lease_path(folder.parent_path(), name.step);
    renewal->every = renewed_every;
    files::append_all(files::open(renewal->path, O_WRONLY | O_CREAT | O_EXCL).get(), holder(), renewal->path);
    std::thread([renewal] { renewal->run(); }).detach();
    renewal_ = std::move(renewal);
    wait_for_retention(folder.parent_path(), name.step);
  } catch (const std::exception& error) {
    why_not_ = fmt::format("no lease can be held on {} ({}): its run may remove it while it is read",
                           step_dir.string(), error.what());
  }
}

Lease::Lease(Lease&&) noexcept = default;

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(renewal_, other.renewal_);
  std::swap(why_not_, other.why_not_);
  return *this;
}

Lease::~Lease() {
  if (!renewal_) return;
  std::unique_lock lock(renewal_->mutex);
  renewal_->given_back = true;
  renewal_->changed.notify_all();
  renewal_->changed.wait_for(lock, seconds(2), [this] { return renewal_->over; });
}

LeasedCheckpoint lease_checkpoint(const fs::path& step_dir) {
  Lease lease(step_dir);
  if (!lease.why_not().empty()) log::warn("{}", lease.why_not());
  Manifest manifest = read_manifest(step_dir);
  return {std::move(lease), step_dir, std::move(manifest)};
}

std::optional<LeasedCheckpoint> lease_newest(const fs::path& checkpoints) {
  constexpr seconds patience{10};  // with a run that removes each before it can be leased
  for (const Deadline over = Deadline::in(patience);;) {
    const auto there = committed_steps(checkpoints);
    try {
      const auto newest = newest_sound(checkpoints);
      if (!newest) return {};
      return lease_checkpoint(newest->path);
    } catch (const Unreadable&) {
      if (over.passed() || committed_steps(checkpoints) == there) throw;
    }
  }
}

std::set<std::int64_t> leased_steps(const fs::path& checkpoints) { return leases_in(checkpoints).held; }

void sweep_leases(const fs::path& checkpoints) {
  for (const fs::path& path : leases_in(checkpoints).expired) ::unlink(path.c_str());
}

}  // namespace holdfast::checkpoint
