#include "src/base/write_queue.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace holdfast {

/// Shared by the owner and the thread: either may be the last to let go.
struct WriteQueue::State {
  struct Write {
    std::size_t bytes = 0;
    std::function<void()> carry_out;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Write> writes;           ///< the first one is under way
  std::size_t bytes = 0;              ///< of `writes`
  std::uint64_t added = 0, done = 0;  ///< how many, since the start
  bool ending = false;
  std::thread thread;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !writes.empty(); });
      if (writes.empty()) return;
      auto carry_out = std::move(writes.front().carry_out);
      lock.unlock();
      carry_out();
      carry_out = nullptr;
      lock.lock();
      bytes -= writes.front().bytes;
      writes.pop_front();
      ++done;
      changed.notify_all();
    }
  }
};

WriteQueue::WriteQueue(std::size_t max_bytes, Millis flush_at_end)
    : state_(std::make_shared<State>()), max_bytes_(max_bytes), flush_at_end_(flush_at_end) {}

WriteQueue::~WriteQueue() {
  const bool empty = flush(flush_at_end_);
  {
    const std::scoped_lock lock(state_->mutex);
    if (!state_->thread.joinable()) return;
    state_->ending = true;
    while (state_->writes.size() > 1) state_->writes.pop_back();
  }
  state_->changed.notify_all();
  if (empty)
    state_->thread.join();
  else
    state_->thread.detach();
}

bool WriteQueue::add(std::size_t bytes, std::function<void()> write) {
  {
    const std::scoped_lock lock(state_->mutex);
    if (bytes > 0 && !state_->writes.empty() && state_->bytes + bytes > max_bytes_) return false;
    state_->writes.push_back({bytes, std::move(write)});
    state_->bytes += bytes;
    ++state_->added;
    if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->serve(); });
  }
  state_->changed.notify_all();
  return true;
}

bool WriteQueue::flush(Millis limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [&, all = state_->added] { return state_->done >= all; });
}

}  // namespace holdfast
