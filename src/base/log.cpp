#include "src/base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "src/base/env.hpp"

namespace holdfast::log {
namespace {
std::shared_ptr<spdlog::logger> make(const std::string& speaker) {
  spdlog::sink_ptr sink;
  if (::isatty(STDERR_FILENO) && !env::get("NO_COLOR"))
    sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  else
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("holdfast", sink);
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      speaker.empty() ? "%^%l%$: %v" : "%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ " + speaker + ": %v",
      spdlog::pattern_time_type::utc));
  logger->flush_on(spdlog::level::info);
  return logger;
}
std::shared_ptr<spdlog::logger>& current() {
  static std::shared_ptr<spdlog::logger> logger = make("");
  return logger;
}
std::string& current_speaker() {
  static std::string name;
  return name;
}
}  // namespace

void start(const std::string& speaker) {
  current_speaker() = speaker;
  current() = make(speaker);
}
const std::string& speaker() { return current_speaker(); }
void info(std::string_view text) { current()->info(text); }
void warn(std::string_view text) { current()->warn(text); }
void error(std::string_view text) { current()->error(text); }

}  // namespace holdfast::log
