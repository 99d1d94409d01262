#pragma once
// The terminal of `holdfast watch`: keys come one by one, lines go to a screen of their own, and whatever
// ends this program leaves the terminal as it was.
#include <termios.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/watch/screen.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {

class Terminal {
 public:
  /// Takes the terminal on standard input and output, and signals, until it is destroyed. Throws Error
  /// (usage) when there is none.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int width = 80, height = 24;
  };
  Size size() const;
  /// Shows `lines`, and writes only those that differ from what is there.
  void draw(const std::vector<watch::Line>& lines);

  struct Input {
    std::string keys;
    int ended_by = 0;  ///< the number of a signal; the end of the terminal is SIGHUP
  };
  /// Waits for keys, another size or a signal, at most `limit`. On SIGTSTP the program stops, and goes on
  /// when it is continued.
  Input wait(std::chrono::milliseconds limit);

 private:
  void enter();
  void leave();
  /// The number of the signal, if it is one that ends this program.
  int take_signal();

  termios before_{};
  sigset_t blocked_before_{};
  files::Fd signals_;
  bool colours_;
  std::vector<watch::Line> shown_;  ///< empty: nothing is known of the screen
};

/// Is the user's locale one of UTF-8? As LC_ALL, LC_CTYPE or LANG says, the first that is set.
bool utf8_locale();

}  // namespace holdfast::launcher
