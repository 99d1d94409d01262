#pragma once
// Ctrl-C in the middle of a long piece of work: what was begun is cleaned up, and then the program ends as
// the signal would have ended it.
#include <exception>

namespace holdfast::tool {

class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// From here on SIGINT, SIGTERM and SIGHUP are only noted.
void note_interrupts();
/// The one that was noted, or 0.
int interrupted();
/// Forgets it; from here on they end the program again.
void forget_interrupts();
/// Throws Interrupted when one was noted.
void stop_if_interrupted();

}  // namespace holdfast::tool
