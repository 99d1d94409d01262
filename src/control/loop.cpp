#include "src/control/loop.hpp"

#include <time.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "src/control/loop_inside.hpp"

namespace holdfast::control {

namespace {
/// Seconds of processor time of this thread.
double turn_clock() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
}  // namespace

RealLoop::RealLoop() : inside_(std::make_unique<Inside>()) {}
RealLoop::~RealLoop() = default;

void RealLoop::run() {
  const auto guard = asio::make_work_guard(inside_->context);
  double begin = turn_clock();
  while (inside_->context.run_one() > 0) {  // waiting takes no processor time
    const double end = turn_clock();
    inside_->longest_turn = std::max(inside_->longest_turn, end - begin);
    begin = end;
  }
}
double RealLoop::longest_turn() { return std::exchange(inside_->longest_turn, 0); }
void RealLoop::stop() { inside_->context.stop(); }
void RealLoop::post(std::function<void()> work) { asio::post(inside_->context, std::move(work)); }

namespace {
struct Ticker : std::enable_shared_from_this<Ticker> {
  Ticker(asio::io_context& context, Millis p, std::function<void()> w)
      : timer(context), period(p), work(std::move(w)) {}
  void wait(bool again) {
    timer.async_wait([weak = weak_from_this(), again](std::error_code error) {
      const auto self = weak.lock();
      if (!self || error) return;
      if (!again) return self->work();
      // Counted from now and not from the planned time: so a process that was stopped does not make up for
      // missed ticks in a burst.
      self->timer.expires_after(self->period);
      self->wait(true);
      self->work();
    });
  }
  asio::steady_timer timer;
  Millis period;
  std::function<void()> work;
};
}  // namespace

Loop::Handle RealLoop::after(Millis delay, std::function<void()> work) {
  auto ticker = std::make_shared<Ticker>(inside_->context, delay, std::move(work));
  ticker->timer.expires_after(delay);
  ticker->wait(false);
  return ticker;
}

Loop::Handle RealLoop::every(Millis period, std::function<void()> work) {
  auto ticker = std::make_shared<Ticker>(inside_->context, period, std::move(work));
  ticker->timer.expires_after(period);
  ticker->wait(true);
  return ticker;
}

Loop::Handle RealLoop::when_readable(int fd, std::function<void()> work) {
  auto descriptor = std::make_shared<asio::posix::stream_descriptor>(inside_->context, fd);
  descriptor->async_wait(asio::posix::stream_descriptor::wait_read,
                         [weak = std::weak_ptr(descriptor), work = std::move(work)](std::error_code error) {
                           if (!error && !weak.expired()) work();
                         });
  return descriptor;
}

namespace {
void wait_signal(const std::shared_ptr<asio::signal_set>& set,
                 const std::shared_ptr<std::function<void(int)>>& work) {
  set->async_wait([weak = std::weak_ptr(set), work](std::error_code error, int number) {
    const auto alive = weak.lock();
    if (error || !alive) return;
    wait_signal(alive, work);
    (*work)(number);
  });
}
}  // namespace

Loop::Handle RealLoop::on_signals(std::initializer_list<int> signals, std::function<void(int)> work) {
  auto set = std::make_shared<asio::signal_set>(inside_->context);
  for (const int s : signals) set->add(s);
  wait_signal(set, std::make_shared<std::function<void(int)>>(std::move(work)));
  return set;
}

}  // namespace holdfast::control
