#pragma once
// Where the metrics of a run go besides metrics.jsonl. Sinks are fed from that file, by a process of their
// own: what fails here cannot touch training.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::launcher::sinks {

class Sink {
 public:
  virtual ~Sink() = default;
  /// What was given so far is void: the run went back, and its lines come again from the first.
  virtual void restart() = 0;
  /// One line of metrics.jsonl with its step, which is > 0. Lines of steps that were lost do not come.
  virtual void take(const nlohmann::json& line) = 0;
  /// After the lines that were there. Throws Error; what was not written then may be asked for again.
  virtual void flush() = 0;
};

/// Reads a metrics.jsonl that may grow and may be replaced.
class MetricsFeed {
 public:
  /// The file need not be there yet. Of one that is longer than `most_bytes` only the end of that length is
  /// read, in whole lines.
  explicit MetricsFeed(std::filesystem::path file,
                       std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max())
      : file_(std::move(file)), most_bytes_(most_bytes) {}
  /// Gives the lines that came since to `sinks`, and flushes them. A line that is no JSON object with a step
  /// is passed over; a last line without its end waits. Throws Error.
  void feed(const std::vector<std::unique_ptr<Sink>>& sinks);

 private:
  std::filesystem::path file_;
  std::uint64_t most_bytes_, inode_ = 0, at_ = 0;
  bool in_a_line_ = false;  ///< its beginning was passed over
  std::string rest_;        ///< the beginning of a line
};

/// A finite number of the line; nothing where there is none.
std::optional<double> number_in(const nlohmann::json& line, const char* key);
/// The line's time in seconds since 1970; 0 where it has none.
double unix_time_of(const nlohmann::json& line);

}  // namespace holdfast::launcher::sinks
