#pragma once
// Threads that share out the parts of a corpus.
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace holdfast::corpus {

/// What a long piece of work shows of itself, and how it is ended. Both are called by the thread that waits,
/// several times a second.
struct Watch {
  /// Bytes of `all` that are done. May be empty.
  std::function<void(const std::string& stage, std::uint64_t done, std::uint64_t all)> progress;
  /// Throws when the work is to end. May be empty.
  std::function<void()> check;
};

/// How far the workers of a stage are. Thread-safe.
class Tally {
 public:
  /// So many more bytes are done. Throws Stopped when the work is to end.
  void add(std::uint64_t bytes) {
    done_ += bytes;
    if (stop_) throw Stopped();
  }
  std::uint64_t done() const { return done_; }
  void stop() { stop_ = true; }

  struct Stopped : std::exception {
    const char* what() const noexcept override { return "stopped"; }
  };

 private:
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
};

/// Calls `work(number, tally)` for each of `numbers`, ascending, on `workers` threads (0: usable_cores()),
/// and returns when all are done. When one throws, the others are stopped, and what the lowest number threw
/// is thrown. `all`: bytes that all of them are, for `watch`.
void share_out(const std::string& stage, const std::vector<std::size_t>& numbers, int workers,
               std::uint64_t all, const Watch& watch, const std::function<void(std::size_t, Tally&)>& work);

}  // namespace holdfast::corpus
