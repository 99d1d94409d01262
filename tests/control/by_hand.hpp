#pragma once
// For tests without real time and sockets: a loop and a channel that a test works by hand.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/control/channel.hpp"

namespace holdfast::control::test {

/// Its time passes when the test says so; the work of a thread takes none, unless the thread is held.
class HandLoop final : public Loop {
 public:
  std::set<std::size_t> held;  ///< threads, in the order in which they were made

  /// Timers ring, in their order.
  void pass(int seconds) { pass(std::chrono::seconds(seconds)); }
  void pass(std::chrono::milliseconds time) {
    const auto until = now_ + time;
    for (;;) {
      std::shared_ptr<Timer> next;
      for (const auto& weak : timers_)
        if (const auto timer = weak.lock(); timer && (!next || timer->at < next->at)) next = timer;
      if (!next || next->at > until) break;
      now_ = std::max(now_, next->at);
      next->at = next->period ? next->at + *next->period : Clock::time_point::max();
      next->work();
    }
    now_ = until;
  }

  Clock::time_point now() const override { return now_; }
  std::function<double()> unix_clock() const override { return unix_seconds; }
  double longest_turn() override { return 0; }
  void post(std::function<void()> work) override { work(); }
  Handle after(Millis delay, std::function<void()> work) override { return add({{}, now_ + delay, work}); }
  Handle every(Millis period, std::function<void()> work) override {
    return add({period, now_ + period, work});
  }
  std::unique_ptr<Thread> thread(ThreadEnd) override { return std::make_unique<HandThread>(*this, made_++); }
  std::shared_ptr<Channel> dial(Call) override { return nullptr; }
  Handle listen(Port) override { return nullptr; }

 private:
  struct Timer {
    std::optional<Millis> period;  ///< nothing: it rings once
    Clock::time_point at;
    std::function<void()> work;
  };
  Handle add(Timer timer) {
    auto kept = std::make_shared<Timer>(std::move(timer));
    timers_.push_back(kept);
    return kept;
  }
  class HandThread final : public Thread {
   public:
    HandThread(HandLoop& loop, std::size_t number) : loop_(loop), number_(number) {}
    void run(std::function<void()> work, std::function<void()> then) override {
      if (loop_.held.contains(number_)) {
        began_ = loop_.now();
        return;
      }
      work();
      then();
    }
    std::optional<Millis> busy_for() const override {
      if (!began_) return std::nullopt;
      return std::chrono::duration_cast<Millis>(loop_.now() - *began_);
    }

   private:
    HandLoop& loop_;
    std::size_t number_;
    std::optional<Clock::time_point> began_;
  };
  Clock::time_point now_{};
  std::vector<std::weak_ptr<Timer>> timers_;
  std::size_t made_ = 0;
};

/// Keeps what is sent.
struct FakeChannel final : Channel {
  void handle(Handlers) override {}
  void send(std::string_view text) override { sent.emplace_back(text); }
  void close() override { is_open = false; }
  bool open() const override { return is_open; }
  std::vector<std::string> sent;
  bool is_open = true;
};

}  // namespace holdfast::control::test
