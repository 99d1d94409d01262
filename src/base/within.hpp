#pragma once
// Reading shared storage that may never answer.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast {

/// The result of `work`, which owns what it touches: it goes on in its thread when it takes longer than
/// `limit`. Throws Error (transient) then, else what `work` throws. `what`: whose storage it reads.
template <class Work>
auto within(std::chrono::milliseconds limit, const std::string& what, Work work) {
  using Result = decltype(work());
  auto promise = std::make_shared<std::promise<Result>>();
  auto future = promise->get_future();
  std::thread([promise, work = std::move(work)]() mutable {
    sigset_t all;  // it outlives its result, and the caller may wait for signals then
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    try {
      promise->set_value(work());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (future.wait_for(limit) != std::future_status::ready)
    throw Error(Exit::transient, "no answer from the storage of " + what,
                fmt::format("for {:.3g} s", static_cast<double>(limit.count()) / 1000),
                "Try again? If 'ls' of that folder hangs, too, tell your administrator");
  return future.get();
}

}  // namespace holdfast
