#pragma once
// Writes the decisions of a leader to the shared file system, in order, beside its event loop: heartbeats go
// on while a disk syncs, or while the file system is gone for a minute.
#include <functional>
#include <string>
#include <vector>

#include "launcher/supervise/journal.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class JournalWriter {
 public:
  /// On disk as a whole before any of it is acted upon.
  struct Batch {
    std::vector<LogEntry> entries;  ///< for the log
    std::function<void()> result;   ///< writes it, after the events. It owns what it touches.
  };
  /// nothing: the batch is on disk. Else why the leader must resign: a higher term exists, or the file system
  /// has not answered for `patience`.
  using Done = std::function<void(const std::optional<std::string>& trouble)>;
  /// `term`: the highest term is read before and after every batch; a higher one than ours that is not
  /// renounced within `renounce_limit` ends the writer. While none can be read at all, the batch waits.
  JournalWriter(control::Loop& loop, RunDir run, int term, std::shared_ptr<Journal> journal,
                Millis patience = Millis(120000), Millis renounce_limit = Millis(2000));

  /// One batch at a time.
  void put(Batch batch, Done done);
  /// For how long the batch that is being written has been waiting.
  Millis waits() const;
  /// To be called periodically while another node could take over: a call may hang, and then the worker does
  /// not return.
  void tick();

 private:
  struct Tried {
    std::optional<std::string> higher, error;
  };
  void write();
  void tried(const Tried& result);
  void end(std::optional<std::string> trouble);

  control::Loop& loop_;
  RunDir run_;
  int term_;
  std::shared_ptr<Journal> journal_;
  Millis patience_, renounce_limit_;
  double unix_offset_;  ///< of the times in the log, from the monotonic clock: the same for the whole term
  std::shared_ptr<Batch> batch_;
  Done done_;
  Clock::time_point since_;
  std::string last_error_;
  std::optional<Clock::time_point> higher_since_;  ///< a higher term has been there since
  control::Loop::Handle again_;
  control::Worker worker_;
};

}  // namespace holdfast::launcher
