#include "src/base/log.hpp"

#include <spdlog/details/log_msg_buffer.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "src/base/env.hpp"
#include "src/base/printable.hpp"
#include "src/base/write_queue.hpp"

namespace holdfast::log {
namespace {

constexpr std::size_t max_waiting = 1 << 20;  // bytes
constexpr Millis flush_at_end{2000};          // for lines that are left when the process ends

/// Hands every line to another sink, in a thread of its own.
class BackgroundSink final : public spdlog::sinks::sink {
 public:
  explicit BackgroundSink(spdlog::sink_ptr to) : to_(std::move(to)) {}
  ~BackgroundSink() override { flush_within(flush_at_end); }

  void log(const spdlog::details::log_msg& line) override {
    const std::scoped_lock lock(mutex_);
    if (!say_dropped() || !add(line)) ++dropped_;
  }
  void flush() override {}  // that would be to wait
  void set_pattern(const std::string& pattern) override { to_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    to_->set_formatter(std::move(formatter));
  }

  bool flush_within(Millis limit) {
    const Deadline deadline = Deadline::in(limit);
    if (!queue_.flush(limit)) return false;
    const std::scoped_lock lock(mutex_);
    return say_dropped() && queue_.flush(Millis(deadline.left_ms()));
  }

 private:
  bool add(const spdlog::details::log_msg& line) {
    return queue_.add(sizeof(spdlog::details::log_msg_buffer) + line.payload.size(),
                      [to = to_, line = spdlog::details::log_msg_buffer(line)] {
                        try {
                          to->log(line);
                          to->flush();
                        } catch (...) {  // there is nowhere left to say it
                        }
                      });
  }
  /// False while there is no room even for that.
  bool say_dropped() {
    if (dropped_ == 0) return true;
    const std::string text =
        fmt::format("{} lines of this log were dropped, as it could not be written", dropped_);
    if (!add({"holdfast", spdlog::level::warn, text})) return false;
    dropped_ = 0;
    return true;
  }

  spdlog::sink_ptr to_;
  WriteQueue queue_{max_waiting, Millis(0)};
  std::mutex mutex_;
  std::int64_t dropped_ = 0;  ///< since it was said last
};

class TakerSink final : public spdlog::sinks::sink {
 public:
  explicit TakerSink(std::function<void(std::string_view)> taker) : taker_(std::move(taker)) {}
  void log(const spdlog::details::log_msg& line) override {
    taker_({line.payload.data(), line.payload.size()});
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  std::function<void(std::string_view)> taker_;
};

spdlog::sink_ptr stderr_sink() {
  if (::isatty(STDERR_FILENO) && !env::get("NO_COLOR"))
    return std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  return std::make_shared<spdlog::sinks::stderr_sink_mt>();
}
std::shared_ptr<spdlog::logger> make(const std::string& speaker, spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("holdfast", std::move(sink));
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      speaker.empty() ? "%^%l%$: %v" : "%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ " + speaker + ": %v",
      spdlog::pattern_time_type::utc));
  logger->flush_on(spdlog::level::info);
  return logger;
}
std::shared_ptr<spdlog::logger>& current() {
  static std::shared_ptr<spdlog::logger> logger = make("", stderr_sink());
  return logger;
}
std::string& current_speaker() {
  static std::string name;
  return name;
}
}  // namespace

void start(const std::string& speaker) {
  current_speaker() = speaker;
  current() = make(speaker, stderr_sink());
}
void start_in_background(const std::string& speaker) {
  current_speaker() = speaker;
  current() = make(speaker, std::make_shared<BackgroundSink>(stderr_sink()));
}
void start_for(std::function<void(std::string_view)> taker) {
  current() = make("", std::make_shared<TakerSink>(std::move(taker)));
}
bool flush(Millis limit) {
  auto* const background = dynamic_cast<BackgroundSink*>(current()->sinks().front().get());
  return background == nullptr || background->flush_within(limit);
}
const std::string& speaker() { return current_speaker(); }
void info(std::string_view text) { current()->info(printable(text)); }
void warn(std::string_view text) { current()->warn(printable(text)); }
void error(std::string_view text) { current()->error(printable(text)); }

}  // namespace holdfast::log
