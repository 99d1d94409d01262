#include "src/tools/cli/interrupt.hpp"

#include <csignal>
#include <initializer_list>

namespace holdfast::tool {
namespace {

volatile std::sig_atomic_t noted = 0;

void note(int signal) { noted = signal; }

}  // namespace

void note_interrupts() {
  struct sigaction action {};
  action.sa_handler = note;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);  // a second one ends us at once
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

int interrupted() { return noted; }

void forget_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
  noted = 0;
}

void stop_if_interrupted() {
  if (noted != 0) throw Interrupted(noted);
}

}  // namespace holdfast::tool
