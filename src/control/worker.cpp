#include "src/control/worker.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace holdfast::control {
namespace {

/// Shared by the owner and the thread: either may be the last to release it.
struct WorkState : std::enable_shared_from_this<WorkState> {
  struct Job {
    std::function<void()> work, then;
  };
  std::mutex mutex;
  std::condition_variable changed;
  Loop* loop = nullptr;  ///< null: the owner was destroyed, and perhaps the loop with it
  std::deque<Job> jobs;
  std::optional<Clock::time_point> began;  ///< of the current job
  std::thread thread;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !loop || !jobs.empty(); });
      if (!loop) return;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      began = Clock::now();
      lock.unlock();
      job.work();
      job.work = nullptr;
      lock.lock();
      began.reset();
      if (loop && job.then)
        loop->post([self = shared_from_this(), then = std::move(job.then)] {
          {
            const std::scoped_lock alive(self->mutex);
            if (!self->loop) return;
          }
          then();
        });
      changed.notify_all();
    }
  }
};

class WorkThread final : public Loop::Thread {
 public:
  WorkThread(Loop& loop, Loop::ThreadEnd end) : state_(std::make_shared<WorkState>()), end_(end) {
    state_->loop = &loop;
  }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  ~WorkThread() override {
    const auto latest = Clock::now() + end_.limit;
    std::unique_lock lock(state_->mutex);
    if (end_.finishes)
      state_->changed.wait_until(lock, latest, [this] { return state_->jobs.empty() && !state_->began; });
    state_->loop = nullptr;
    state_->jobs.clear();
    state_->changed.notify_all();
    if (!state_->thread.joinable()) return;
    const bool idle = state_->changed.wait_until(lock, latest, [this] { return !state_->began; });
    lock.unlock();
    if (idle)
      state_->thread.join();
    else
      state_->thread.detach();
  }

  void run(std::function<void()> work, std::function<void()> then) override {
    const std::scoped_lock lock(state_->mutex);
    state_->jobs.push_back({std::move(work), std::move(then)});
    if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->serve(); });
    state_->changed.notify_all();
  }

  std::optional<Millis> busy_for() const override {
    const std::scoped_lock lock(state_->mutex);
    if (!state_->began) return std::nullopt;
    return std::chrono::duration_cast<Millis>(Clock::now() - *state_->began);
  }

 private:
  std::shared_ptr<WorkState> state_;
  Loop::ThreadEnd end_;
};

}  // namespace

std::unique_ptr<Loop::Thread> RealLoop::thread(ThreadEnd end) {
  return std::make_unique<WorkThread>(*this, end);
}

}  // namespace holdfast::control
