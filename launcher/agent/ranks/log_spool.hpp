#pragma once
// The logs of a node's processes. They are written to files in the node's memory, so that nobody who logs
// waits for shared storage; a thread of the agent appends them to logs/ of the run directory.
//
// Of a spooled file the bytes before `copied` are in the run directory, and their memory is given back, but
// for the last ones. Those behind it are in the node's memory alone, at most max_waiting a file: older ones
// are dropped, and a line in the log says how many.
//
// What a node has not copied yet is lost with the node: half a second of its logs, while storage answers.
#include <filesystem>
#include <memory>

#include "launcher/agent/ranks/scratch.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/loop.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

/// The file to which a process of this node writes what belongs into `log`, a file below logs() of the run
/// directory.
std::filesystem::path spooled_path(const Scratch& scratch, const RunDir& run,
                                   const std::filesystem::path& log);
/// The same; its folder is made. Throws Error.
std::filesystem::path spooled(const Scratch& scratch, const RunDir& run, const std::filesystem::path& log);

class LogSpool {
 public:
  LogSpool(control::Loop& loop, const Scratch& scratch, const RunDir& run);
  /// Files of older attempts are removed once they are copied: no process writes to them any more.
  void forget_older(int attempt);
  /// Begins to copy what waits; it is called periodically, too.
  void copy();
  /// Nothing waits to be copied, and no thread is at the files: they can be removed.
  bool empty() const;

  /// Of a file.
  static constexpr std::int64_t max_waiting = 8 << 20;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  bool copying_ = false;
  control::Worker worker_;
  control::Loop::Handle timer_;
};

}  // namespace holdfast::launcher
