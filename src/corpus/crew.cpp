#include "src/corpus/crew.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace holdfast::corpus {
namespace {

class Crew {
 public:
  Crew(const std::vector<std::size_t>& numbers, const std::function<void(std::size_t, Tally&)>& work)
      : numbers_(numbers), work_(work) {}
  ~Crew() {
    tally_.stop();
    for (std::thread& thread : threads_) thread.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void start(int workers) {
    const auto most = static_cast<int>(std::min<std::size_t>(numbers_.size(), 4096));
    for (int i = 0; i < std::min(workers, most); ++i) {
      {
        const std::lock_guard lock(mutex_);
        ++running_;
      }
      threads_.emplace_back([this] { take_parts(); });
    }
  }
  /// False while somebody works.
  bool over_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return running_ == 0; });
  }
  void rethrow() const {
    if (!failures_.empty()) std::rethrow_exception(failures_.begin()->second);
  }
  const Tally& tally() const { return tally_; }

 private:
  void take_parts() {
    for (std::size_t i = 0; (i = next_++) < numbers_.size();) {
      try {
        tally_.add(0);
        work_(numbers_[i], tally_);
      } catch (const Tally::Stopped&) {
        break;
      } catch (...) {
        const std::lock_guard lock(mutex_);
        failures_.emplace(numbers_[i], std::current_exception());
        tally_.stop();
        break;
      }
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  const std::vector<std::size_t>& numbers_;
  const std::function<void(std::size_t, Tally&)>& work_;
  Tally tally_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  std::map<std::size_t, std::exception_ptr> failures_;
  std::vector<std::thread> threads_;
};

}  // namespace

void share_out(const std::string& stage, const std::vector<std::size_t>& numbers, int workers,
               std::uint64_t all, const Watch& watch, const std::function<void(std::size_t, Tally&)>& work) {
  Crew crew(numbers, work);
  crew.start(workers > 0 ? workers : usable_cores());
  while (!crew.over_within(std::chrono::milliseconds(100))) {
    if (watch.progress) watch.progress(stage, crew.tally().done(), all);
    if (watch.check) watch.check();
  }
  crew.rethrow();
  if (watch.check) watch.check();
}

int usable_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(CPU_COUNT(&cores), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

}  // namespace holdfast::corpus
