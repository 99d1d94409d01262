#include "launcher/cli/terminal.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

// Another screen than that of the shell, no cursor, and lines that are not broken; and back.
constexpr const char* begin_screen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr const char* end_screen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

const char* colour_of(watch::Style style) {
  switch (style) {
    case watch::Style::good:
      return "\x1b[1;32m";
    case watch::Style::warning:
      return "\x1b[33m";
    case watch::Style::bad:
      return "\x1b[31m";
    case watch::Style::heading:
      return "\x1b[1m";
    case watch::Style::curve:
      return "\x1b[36m";
    case watch::Style::plain:
      break;
  }
  return "";
}

/// False: the terminal is gone.
bool put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<unsigned long>(written));
  }
  return true;
}

bool is_set(const char* name) { return !env::get_or(name, "").empty(); }

void expect_terminal() {
  const auto refuse = [](const char* why) {
    throw Error(Exit::usage, "'holdfast watch' needs a terminal", why,
                "'holdfast status RUN' prints the same facts once, and 'ssh -t' brings a terminal along");
  };
  if (::isatty(STDIN_FILENO) == 0) refuse("standard input is none");
  if (::isatty(STDOUT_FILENO) == 0) refuse("standard output is none");
  if (const std::string term = env::get_or("TERM", ""); term.empty() || term == "dumb")
    refuse("TERM says that it can only print lines");
}

}  // namespace

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!is_set(name)) continue;
    const std::string locale = lower(env::get_or(name, ""));
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

Terminal::Terminal() : colours_(!is_set("NO_COLOR")) {
  expect_terminal();
  if (::tcgetattr(STDIN_FILENO, &before_) != 0)
    throw system_error("cannot read the terminal's settings", errno);
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH})
    ::sigaddset(&ours, signal);
  signals_ = files::Fd(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw system_error("cannot wait for signals", errno);
  ::sigprocmask(SIG_BLOCK, &ours, &blocked_before_);
  enter();
}

Terminal::~Terminal() {
  leave();
  ::sigprocmask(SIG_SETMASK, &blocked_before_, nullptr);
}

void Terminal::enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  put(begin_screen);
  shown_.clear();
}

void Terminal::leave() {
  put(end_screen);
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

Terminal::Size Terminal::size() const {
  winsize found{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) != 0 || found.ws_col == 0 || found.ws_row == 0) return {};
  return {found.ws_col, found.ws_row};
}

void Terminal::draw(const std::vector<watch::Line>& lines) {
  std::string out;
  if (shown_.size() != lines.size()) {
    out = "\x1b[2J";
    shown_.assign(lines.size(), {});
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] == shown_[i]) continue;
    const char* colour = colours_ ? colour_of(lines[i].style) : "";
    out += fmt::format("\x1b[{};1H\x1b[2K{}{}{}", i + 1, colour, lines[i].text, *colour ? "\x1b[0m" : "");
  }
  shown_ = lines;
  put(out);
}

int Terminal::take_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    switch (info.ssi_signo) {
      case SIGTSTP:
        leave();
        ::raise(SIGSTOP);
        break;
      case SIGCONT:
        enter();
        break;
      case SIGWINCH:
        shown_.clear();
        break;
      default:
        return static_cast<int>(info.ssi_signo);
    }
  }
  return 0;
}

Terminal::Input Terminal::wait(std::chrono::milliseconds limit) {
  Input input;
  std::array<pollfd, 2> sources = {{{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
  if (::poll(sources.data(), sources.size(), static_cast<int>(limit.count())) <= 0) return input;
  if (sources[1].revents != 0) input.ended_by = take_signal();
  if (sources[0].revents == 0 || input.ended_by != 0) return input;
  std::array<char, 256> bytes{};
  const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got > 0)
    input.keys = watch::typed({bytes.data(), static_cast<unsigned long>(got)});
  else if (got == 0 || errno != EINTR)
    input.ended_by = SIGHUP;
  return input;
}

}  // namespace holdfast::launcher
