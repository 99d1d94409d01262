#include "src/train/common/background.hpp"

#include <chrono>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {

Background::Background() : thread_([this] { serve(); }) {}

Background::~Background() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Background::begin(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    expects(!work_, "one thing at a time");
    work_ = std::move(work);
  }
  changed_.notify_all();
}

bool Background::going() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<bool>(work_);
}

double Background::join() {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !work_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Background::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return work_ || ending_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace holdfast::train
