#include "launcher/cli/repeated.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/base/clock.hpp"

namespace holdfast::launcher {

struct Repeated::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::chrono::milliseconds pause{};
  std::function<void()> work;
  std::optional<Clock::time_point> began;
  bool ends = false, hurries = false;

  void serve() {
    std::unique_lock lock(mutex);
    while (!ends) {
      began = Clock::now();
      lock.unlock();
      work();
      lock.lock();
      began.reset();
      changed.wait_for(lock, pause, [this] { return ends || hurries; });
      hurries = false;
    }
  }
};

Repeated::Repeated(std::chrono::milliseconds pause, std::function<void()> work)
    : state_(std::make_shared<State>()) {
  state_->pause = pause;
  state_->work = std::move(work);
  std::thread([state = state_] { state->serve(); }).detach();
}

Repeated::~Repeated() {
  const std::scoped_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
}

std::optional<double> Repeated::busy_for_s() const {
  const std::scoped_lock lock(state_->mutex);
  if (!state_->began) return std::nullopt;
  return std::chrono::duration<double>(Clock::now() - *state_->began).count();
}

void Repeated::hurry() {
  const std::scoped_lock lock(state_->mutex);
  state_->hurries = true;
  state_->changed.notify_all();
}

}  // namespace holdfast::launcher
