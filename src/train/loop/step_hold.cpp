#include "src/train/loop/step_hold.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr Seconds glance{0.05}, first_look{5};

}  // namespace

HoldTerms read_hold(std::string_view text) {
  std::istringstream words{std::string(text)};
  double least = 0, longest = 0;
  words >> least >> longest;
  return {Seconds(std::max(least, 0.0)), Seconds(std::max(longest, 0.0))};
}

/// What the file says, looked at by a thread: whoever trains does not wait for shared storage.
struct StepHold::Watch {
  std::mutex mutex;
  std::condition_variable looked;
  bool known = false, over = false;
  std::optional<HoldTerms> held;

  void look(const RunDir& run) {
    std::optional<HoldTerms> terms;
    const files::Look there = files::look_at(run.hold());
    try {
      if (there.presence == files::Presence::there) terms = read_hold(files::read_text(run.hold()));
    } catch (const Error&) {
      // It has just gone, or cannot be read now: the next look tells.
    }
    const bool gone = there.presence == files::Presence::absent && files::is_there(run.path);
    const std::scoped_lock lock(mutex);
    if (terms && !held) log::info("the run is held until {} is gone", run.hold().string());
    if (terms || gone) held = terms;
    known = true;
    looked.notify_all();
  }
};

StepHold::StepHold(const RunDir& run, std::int64_t last_step)
    : watch_(std::make_shared<Watch>()), last_step_(last_step) {
  std::thread([watch = watch_, run] {
    for (std::unique_lock lock(watch->mutex); !watch->over; lock.lock()) {
      lock.unlock();
      watch->look(run);
      std::this_thread::sleep_for(glance);
    }
  }).detach();  // it may wait for shared storage for ever
}

StepHold::~StepHold() {
  const std::scoped_lock lock(watch_->mutex);
  watch_->over = true;
}

std::optional<HoldTerms> StepHold::terms() const {
  std::unique_lock lock(watch_->mutex);
  watch_->looked.wait_for(lock, first_look, [this] { return watch_->known; });
  return watch_->held;
}

void StepHold::before(std::int64_t step, const std::function<void()>& alive) {
  const auto came = Clock::now();
  while (const auto held = terms()) {
    const auto now = Clock::now();
    const Seconds left = step >= last_step_ ? held->longest_end - Seconds(now - came)
                         : began_           ? held->least_step - Seconds(now - *began_)
                                            : Seconds(0);
    if (left <= Seconds(0)) break;
    alive();
    std::this_thread::sleep_for(std::min(left, glance));
  }
  began_ = Clock::now();
}

}  // namespace holdfast::train
