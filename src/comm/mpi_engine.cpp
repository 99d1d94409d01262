#include "src/comm/mpi_engine.hpp"

#include "src/base/clock.hpp"

#include <mpi.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>

namespace holdfast::comm {
namespace {
// Ranks share cores, so whoever waits sleeps soon. It never gives way instead: the kernel lets one who wakes
// up run soon, but one who has given way after everybody else (tens of times later on two cores with 20 to
// run).
constexpr int looks_before_sleep = 10;
constexpr auto nap = std::chrono::microseconds(50);         // while something comes for which nobody rings
constexpr auto long_sleep = std::chrono::milliseconds(50);  // else: no longer than a deadline may be late

}  // namespace

MpiEngine::MpiEngine(Doorbell& bell)
    : bell_(bell),
      beat_(std::make_shared<std::atomic<std::int64_t>>(steady_ns())),
      thread_([this] { run(); }) {}

MpiEngine::~MpiEngine() = default;

std::vector<std::shared_ptr<MpiGroup>> MpiEngine::stop() {
  stop_.store(true);
  bell_.ring();
  for (const Deadline end = Deadline::in(std::chrono::seconds(2)); !ended_.load(); bell_.ring()) {
    if (end.passed()) end_job(static_cast<int>(Exit::runtime));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  thread_.join();
  refresh();
  return std::move(unfinished_);
}

void MpiEngine::add(std::shared_ptr<MpiGroup> group) {
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::move(group));
  }
  version_.fetch_add(1, std::memory_order_release);
  bell_.ring();
}

void MpiEngine::remove(const std::shared_ptr<MpiGroup>& group) noexcept {
  {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, group);
  }
  version_.fetch_add(1, std::memory_order_release);
  bell_.ring();
}

void MpiEngine::refresh() {
  const std::uint64_t version = version_.load(std::memory_order_acquire);
  if (version == seen_) return;
  seen_ = version;
  std::vector<std::shared_ptr<MpiGroup>> now;
  {
    const std::lock_guard lock(mutex_);
    now = groups_;
  }
  for (const auto& group : now)
    if (std::find(served_.begin(), served_.end(), group) == served_.end()) group->attach();
  for (const auto& group : served_) {
    if (std::find(now.begin(), now.end(), group) != now.end()) continue;
    group->detach();
    if (!group->quiet()) unfinished_.push_back(group);
  }
  served_ = std::move(now);
}

void MpiEngine::run() {
  prctl(PR_SET_NAME, "holdfast-comm");
  prctl(PR_SET_TIMERSLACK, 1000);  // ns: a nap is as long as it says
  for (int idle = 0; !stop_.load(std::memory_order_relaxed);) {
    const std::uint32_t heard = bell_.rings.load();
    beat_->store(steady_ns(), std::memory_order_relaxed);
    if (const int code = abort_code_.load(); code >= 0) end_job(code);
    refresh();
    bool moved = false, busy = false, must_be_polled = false;
    for (const auto& group : served_) {
      moved |= group->poll();
      busy |= group->busy();
      must_be_polled |= group->must_be_polled();
    }
    if (moved) {
      idle = 0;
    } else if (!busy || ++idle > looks_before_sleep) {
      bell_.sleep(heard, must_be_polled ? std::chrono::nanoseconds(nap) : long_sleep);
    }
  }
  ended_.store(true);
}

void MpiEngine::abort(int exit_code) noexcept {
  abort_code_.store(exit_code);
  bell_.ring();
  // MPI may be called by one thread at a time: the communication thread ends the job, unless it cannot.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::thread([exit_code] { end_job(exit_code); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::_Exit(exit_code);  // the starter of the job ends the others when one has died so
}

void end_job(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort may return when the runtime is already gone
}

}  // namespace holdfast::comm
