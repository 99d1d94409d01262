#include "src/train/loop/stop_signals.hpp"

#include <csignal>
#include <utility>

namespace holdfast::train {
namespace {

constexpr std::array<int, 2> signals = {SIGTERM, SIGUSR1};
volatile std::sig_atomic_t came = 0;  // the newest; a handler reaches nothing else

void note(int signal) { came = signal; }

}  // namespace

StopSignals::StopSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;  // what the step is waiting for goes on
    if (signals[i] == SIGTERM) action.sa_flags |= SA_RESETHAND;
    ::sigaction(signals[i], &action, &before_[i]);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
}

std::optional<control::Drain> StopSignals::take() {
  const int signal = came;
  if (signal == 0) return std::nullopt;
  came = 0;
  return control::Drain{true, signal == SIGTERM ? "SIGTERM" : "SIGUSR1"};
}

}  // namespace holdfast::train
