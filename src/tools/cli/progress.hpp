#pragma once
// A line on stderr that shows how far a long piece of work is; only on a terminal, and only after two
// seconds.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "src/base/clock.hpp"
#include "src/base/printable.hpp"

namespace holdfast::tool {

class Progress {
 public:
  explicit Progress(bool terminal = ::isatty(2) == 1) : terminal_(terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap when there is nothing to show; at most four lines a second.
  template <class MakeText>
  void show(MakeText make_text) {
    if (!terminal_ || !next_.passed()) return;
    std::fprintf(stderr, "\r\033[K%s", printable_line(make_text()).c_str());
    shown_ = true;
    next_ = Deadline::in(Millis(250));
  }
  void clear() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  bool terminal_, shown_ = false;
  Deadline next_ = Deadline::in(Millis(2000));
};

}  // namespace holdfast::tool
