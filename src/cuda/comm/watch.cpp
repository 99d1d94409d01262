#include "src/cuda/comm/watch.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "src/cuda/comm/bulk_group.hpp"

namespace holdfast::cuda {
namespace {
constexpr auto between_looks = std::chrono::milliseconds(1);
constexpr auto between_idle_looks = std::chrono::milliseconds(100);  // others may have failed
}  // namespace

Watch::Watch(bool own_thread) {
  if (own_thread) thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watch::run() {
  prctl(PR_SET_NAME, "holdfast-watch");
  std::unique_lock lock(mutex_);
  while (!stop_) {
    idle_.store(true);  // before the look: what is enqueued behind it wakes
    if (look()) {
      idle_.store(false);
      woken_.wait_for(lock, between_looks, [this] { return stop_; });
    } else {
      woken_.wait_for(lock, between_idle_looks, [this] { return stop_ || !idle_.load(); });
    }
  }
}

void Watch::wake() noexcept {
  if (!idle_.exchange(false)) return;
  { const std::lock_guard lock(mutex_); }  // whoever looked before is asleep by now
  woken_.notify_all();
}

void Watch::add(BulkGroup& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(&group);
  if (failure_) group.stop(*failure_);
}

void Watch::remove(BulkGroup& group) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(groups_, &group);
}

bool Watch::look() noexcept {
  bool busy = false;
  for (BulkGroup* group : groups_) {
    if (const auto error = group->look()) end_all(*error);
    busy = busy || group->busy();
  }
  // A peer that is not yet told may write over what let its streams go.
  if (failure_)
    for (BulkGroup* group : groups_)
      if (group->busy()) group->let_go();
  return busy;
}

void Watch::end_all(const Error& error) noexcept {
  if (failure_) return;
  failure_.emplace(error);
  for (BulkGroup* group : groups_) group->stop(error);
  for (BulkGroup* group : groups_) group->let_go();
}

void Watch::check() {
  const std::lock_guard lock(mutex_);
  look();
  if (failure_) throw Error(*failure_);
}

void Watch::fail(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  end_all(error);
}

std::optional<Error> Watch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace holdfast::cuda
