#pragma once
// Interpreters that wait with modules imported, so that a rank starts without the seconds that this takes
// (rank.warm). One waits for each rank that the node may get, on spares too; it belongs to the attempt
// waiting_attempt, which is younger than all others, so that nobody takes it for a process of an old one.
// What the rank is gets to it in one line, and it becomes the rank: its environment as /proc shows it, too.
//
//   a waiting one     then
//   is taken          the next one is started after `pause`, when the attempt has its own start behind it
//   does not run yet  it is not taken: storage keeps it waiting
//   ends              none is started any more: a module breaks the interpreter, and ranks start without
//   is not needed     end(): it is killed, as it may be in the midst of an import
//   loses its agent   it reads the end of its input, and ends
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launcher/agent/ranks/node_system.hpp"
#include "src/base/files.hpp"
#include "src/config/python_command.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

class WarmRanks {
 public:
  static constexpr Millis pause{20000};

  /// `command`: of a rank of waiting_attempt, without its program and what only one rank has; its output is
  /// where those that wait print. Nothing waits where `rank.warm` is empty.
  WarmRanks(control::Loop& loop, NodeSystem& system, const config::Rank& rank, int count, Command command);
  /// One that waits becomes the rank that `command` starts; nothing: none does.
  std::optional<pid_t> start(const Command& command, std::function<void(int status)> ended);
  /// Those that wait are ended, and no more are started.
  void end();

 private:
  struct Waiting {
    pid_t pid = 0;
    bool runs = false;  ///< it is an interpreter, and waits for no storage to become one
    files::Fd input;    ///< its stdin: closed, it ends
    std::function<void(int)> ended;
  };
  void fill();
  void start_one();
  void none_waits(const Error& why);

  control::Loop& loop_;
  NodeSystem& system_;
  std::optional<config::PythonCommand> program_;
  int count_;
  Command command_;
  std::list<std::shared_ptr<Waiting>> waiting_;
  control::Loop::Handle later_;
};

}  // namespace holdfast::launcher
