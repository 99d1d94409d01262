#pragma once
// The event log: events/NNNN.jsonl, one file per term, one writer, one line per decision, synced before the
// decision is acted upon. And term/NNNN, the files by which a leader takes a term.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/supervise/run_state.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// The highest term that was taken; 0: none.
int highest_term(const RunDir& run);
/// The same without those whose taker has renounced them. Terms up to `known` are not looked at.
int highest_valid_term(const RunDir& run, int known = 0);
/// By the node that took it: nobody leads in term `number`, now or later.
void renounce_term(const RunDir& run, int number, const std::string& node);
/// Takes term `number`; false when another node has it. Throws Error when the shared file system does not
/// answer.
bool take_term(const RunDir& run, int number, const std::string& node);

class Journal {
 public:
  /// Opens this term's file for appending.
  Journal(const RunDir& run, int term);
  /// Gives the event its envelope, writes it and syncs. Returns what was written. `unix`: when it was
  /// decided; 0: now.
  LogEntry write(Event event, double unix = 0);
  /// Several events at once, with one sync. Of their envelopes only `unix` is taken (0: now). After an Error
  /// none of them counts: the next call removes the part that was written, and readers of the file leave out
  /// a torn last line.
  void write_all(const std::vector<LogEntry>& entries);

 private:
  LogEntry completed(LogEntry entry);
  void append(const std::string& lines);
  files::fs::path path_;
  files::Fd fd_;
  int term_;
  int seq_ = 0;
  std::uint64_t good_ = 0;  ///< bytes that are synced
  bool torn_ = false;       ///< an incomplete write may follow them
};

/// All events of all terms in order. A torn last line of a file (its writer died) is left out, and so are
/// lines that are no JSON object and events that were written after the next leader had read the log
/// (valid_events.hpp). `own_term`: of a leader that has just opened its file; a listing without that file may
/// lack other files too. Throws Error when the folder or a file cannot be read: a leader that took that for
/// an empty log would make all earlier events void. Also when an event is malformed; it names the line.
std::vector<LogEntry> read_events(const RunDir& run, int own_term = 0);
RunState replay(const RunDir& run);

/// The same events for a program that looks again and again: it reads only what was added. For views, not for
/// leaders: lines that a leader has cut off may be seen until its file is as long as before.
class EventFollower {
 public:
  explicit EventFollower(RunDir run) : run_(std::move(run)) {}
  /// Reads what has come; false: nothing. Throws Error as read_events() does.
  bool look();
  std::vector<LogEntry> events() const;

 private:
  struct File {
    std::uint64_t bytes = 0;  ///< taken, in whole lines
    int lines = 0;
    std::vector<LogEntry> entries;
  };
  RunDir run_;
  std::map<std::string, File> files_;
};

}  // namespace holdfast::launcher
