#pragma once
// One thing at a time on a thread of its own, which the caller later waits for.
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace holdfast::train {

class Background {
 public:
  Background();
  /// Waits for what is going on.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Only when nothing is going on.
  void begin(std::function<void()> work);
  /// Something was begun and has not ended.
  bool going() const;
  /// Waits for the end of what was begun; at once when there is nothing. Returns the seconds that it waited,
  /// or throws what the work threw.
  double join();

 private:
  void serve();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // while it is there, it is going on
  std::exception_ptr failure_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace holdfast::train
