#pragma once
// Talk for people, on stderr: time, level, who speaks; all of it printable(). Decisions go to the event log,
// not here.
#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>

#include "src/base/clock.hpp"

namespace holdfast::log {

/// `speaker` prefixes every line, for example "agent dgx003" or "rank 7". Call once, early.
void start(const std::string& speaker);
/// The same, but no caller ever waits for stderr, which may be a file on storage that does not answer: lines
/// are written by a thread of their own. 1 MiB of them may wait; then lines are dropped, and a later line
/// says how many. Whoever ends the process other than through main() calls flush() before.
void start_in_background(const std::string& speaker);
/// Every line goes to `taker` instead, from the thread that says it: for programs that simulate others.
void start_for(std::function<void(std::string_view line)> taker);
/// Waits until the lines so far are written; false when the limit came first. At once without a thread.
bool flush(Millis limit);
/// What start() was told, for a loaded module: it has a log of its own.
const std::string& speaker();
void info(std::string_view text);
void warn(std::string_view text);
void error(std::string_view text);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0) {
  info(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0) {
  warn(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0) {
  error(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace holdfast::log
