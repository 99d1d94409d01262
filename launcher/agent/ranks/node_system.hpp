#pragma once
// What an agent starts, sees and ends on its node. LinuxNode (launcher/agent/daemon) is that of a real one;
// the simulator (tests/sim) has nodes of its own.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/children.hpp"
#include "launcher/agent/ranks/outside_look.hpp"
#include "launcher/agent/ranks/run_processes.hpp"
#include "src/base/subprocess.hpp"
#include "src/control/loop.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class Mover;

class NodeSystem {
 public:
  virtual ~NodeSystem() = default;

  /// As Children::start(); programs of ours are found beside this one.
  virtual pid_t start(Command command, ChildHooks hooks) = 0;
  /// As Children::watch() and Children::awaits().
  virtual void watch(pid_t pid, std::function<void()> ended) = 0;
  virtual bool awaits(pid_t pid) const = 0;
  /// The guardian is its parent, and records its end (rank_record.hpp).
  virtual bool is_guardians(pid_t pid) const = 0;
  /// False: there is no such process.
  virtual bool signal(pid_t pid, int signal) = 0;
  /// As processes_of(), with those that this agent has started and that have not become their programs yet;
  /// `orphans`: with the other children of the guardian.
  virtual std::vector<RunProcess> processes(bool orphans) const = 0;
  /// As Children::cpu_seconds_of().
  virtual std::optional<double> cpu_seconds_of(pid_t) const { return {}; }
  /// As processes_of_rank().
  virtual std::vector<Leftover> processes_of_rank(int, int) const { return {}; }
  /// As process_facts().
  virtual std::optional<ProcessFacts> process(pid_t pid) const = 0;
  /// As dump_stacks().
  [[nodiscard]] virtual control::Loop::Handle stacks(pid_t pid, const std::filesystem::path& log,
                                                     std::function<void(std::string)> done) = 0;

  /// As look_why_left().
  [[nodiscard]] virtual control::Loop::Handle why_left(std::vector<RunProcess> left,
                                                       std::function<void(std::string)> done) = 0;

  /// As OutsideLook::look().
  virtual bool look_outside(int attempt, std::vector<WatchedRank> ranks,
                            std::function<void(const Growths&)> then) = 0;
  /// As remove_flight_records(), of the scratch folder.
  virtual void remove_flight_records(int attempt) = 0;
  /// What keeps snapshot buffers on this node (launcher/agent/mover); null: nothing does.
  virtual Mover* mover() { return nullptr; }
  /// As find_free_port().
  virtual int free_port(int first) const = 0;
  /// As NodeChecker::check().
  virtual void check(bool numerics, std::function<void(const control::NodeHealth&)> then) = 0;
  /// Ends this agent, whose guardian starts another one.
  virtual void replace_agent() = 0;
  /// As tell_guardian().
  virtual void tell_guardian(bool over) = 0;
  /// As inject_at_node().
  virtual void inject(const control::Inject& fault) = 0;
};

/// Sends `signal` to every process of an attempt below `attempt`, and `to_pmix` to PMIx servers; returns
/// those that there were. At pmix_end_signal() a PMIx server removes what ranks have left; 0 is no signal.
/// `orphans`: as in NodeSystem::processes(), which may throw Error.
std::vector<RunProcess> kill_older(NodeSystem& node, int attempt, int signal, int to_pmix, bool orphans);

}  // namespace holdfast::launcher
