#pragma once
// What a process has from outside: time, timers, threads for work that may wait, and connections. RealLoop is
// that of a process, a thin wrapper of Asio: only loop.cpp and what makes connections include it. The
// simulator (tests/sim) has one in virtual time.
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>

#include "src/base/clock.hpp"

namespace holdfast::control {

class Channel;
struct Call;
struct Port;

class Loop {
 public:
  virtual ~Loop() = default;

  /// Of the monotonic clock.
  virtual Clock::time_point now() const = 0;
  double steady_seconds() const { return std::chrono::duration<double>(now().time_since_epoch()).count(); }
  double unix_now() const { return unix_clock()(); }
  /// Seconds since the Unix epoch, for work beside the loop, which may outlive it.
  virtual std::function<double()> unix_clock() const = 0;

  /// Of all callbacks since the last call of this, the one that took most: s of processor time, so that other
  /// processes on the machine do not count. In the loop's thread.
  virtual double longest_turn() = 0;
  virtual void post(std::function<void()> work) = 0;  ///< thread-safe

  /// Destroying the handle cancels the timer.
  using Handle = std::shared_ptr<void>;
  [[nodiscard]] virtual Handle after(Millis delay, std::function<void()> work) = 0;
  [[nodiscard]] virtual Handle every(Millis period, std::function<void()> work) = 0;

  /// What a Worker (worker.hpp) runs its work in.
  class Thread {
   public:
    virtual ~Thread() = default;
    virtual void run(std::function<void()> work, std::function<void()> then) = 0;
    virtual std::optional<Millis> busy_for() const = 0;
  };
  struct ThreadEnd {
    Millis limit;
    bool finishes;  ///< work that has not begun is done, too
  };
  virtual std::unique_ptr<Thread> thread(ThreadEnd end) = 0;

  virtual std::shared_ptr<Channel> dial(Call call) = 0;  ///< see dial() in channel.hpp
  /// Until the handle is destroyed. Throws Error (transient) when the address is taken.
  [[nodiscard]] virtual Handle listen(Port port) = 0;
};

class RealLoop final : public Loop {
 public:
  RealLoop();
  ~RealLoop() override;
  RealLoop(const RealLoop&) = delete;
  RealLoop& operator=(const RealLoop&) = delete;

  /// Runs until stop(). All callbacks are called in the thread that runs this.
  void run();
  void stop();  ///< thread-safe

  Clock::time_point now() const override { return Clock::now(); }
  std::function<double()> unix_clock() const override { return unix_seconds; }
  double longest_turn() override;
  void post(std::function<void()> work) override;
  [[nodiscard]] Handle after(Millis delay, std::function<void()> work) override;
  [[nodiscard]] Handle every(Millis period, std::function<void()> work) override;
  std::unique_ptr<Thread> thread(ThreadEnd end) override;
  std::shared_ptr<Channel> dial(Call call) override;
  [[nodiscard]] Handle listen(Port port) override;

  /// Calls once, when `fd` becomes readable (a pidfd: when the process has ended). The loop then owns `fd`.
  [[nodiscard]] Handle when_readable(int fd, std::function<void()> work);
  /// Calls for every signal; the argument is the signal's number.
  [[nodiscard]] Handle on_signals(std::initializer_list<int> signals, std::function<void(int)> work);

  struct Inside;  ///< Asio's context, for connections
  Inside& inside() { return *inside_; }

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace holdfast::control
