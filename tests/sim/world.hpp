#pragma once
// One schedule: a run on a few nodes, faults for some time, then everything is repaired and the run must
// reach a defined end. Invariants are checked at the events that they concern; the first one that does not
// hold ends the schedule.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "tests/sim/lead.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/storage.hpp"
#include "tests/sim/training.hpp"

namespace holdfast::sim {

/// Bugs that can be switched on, to test that the invariants find them. (Bugs in production code are put into
/// copies of it: tests/sim/mutations.sh.)
enum class Bug {
  none,
  commit_unchecked,
  act_before_record,
  act_unchecked,
  old_votes,
  cleared_early,
  lower_leader
};

struct Broken {
  std::string what;
};

struct Coverage {
  std::map<std::pair<std::string, std::string>, std::int64_t> pairs;  ///< (stage, event) -> times
  std::map<std::string, std::int64_t> faults;
  std::map<int, std::int64_t> exits;
  std::int64_t attempts = 0, terms = 0, adopted = 0, commits = 0, events = 0, requeues = 0, voids = 0;
  std::map<std::string, std::int64_t> levels;
};

class World {
 public:
  World(std::uint64_t seed, Bug bug, Coverage& coverage, bool tracing);
  ~World();
  /// Throws Broken.
  void play();
  /// Before play(): the only fault is storage that hangs. No attempt ends by that, and no node is lost.
  void only_let_storage_hang();
  std::string trace() const;

  // --- for nodes and leaders ---
  Timeline timeline;
  Random random;
  int slots, spares;
  Network network;
  SharedStorage storage;
  launcher::Roster roster;
  config::Supervise limits;
  int drain_s = 10;
  bool shrinks = false;
  bool corrupted = false;        ///< some rank has computed wrongly
  std::vector<bool> controller;  ///< does slurmctld answer this node?
  Bug bug;
  std::unique_ptr<Training> training;
  std::vector<std::unique_ptr<Node>> nodes;
  Coverage& coverage;

  Node& node(int n) { return *nodes[n]; }
  int node_count() const { return static_cast<int>(nodes.size()); }
  const std::string& name(int n) const { return roster.nodes[n].name; }
  void say(const std::string& text);
  void expect(bool holds, const std::string& what);
  /// A chance for a leader to be stopped or to die between two actions; true when it has happened.
  bool interrupted(const ProcessPtr& process);
  launcher::Supervisor supervisor(int term, launcher::RunState state) const;
  void covered(launcher::Stage stage, const char* event);
  /// Calls `what` in a process when shared storage answers its node: now, unless it hangs.
  void when_storage_answers(const ProcessPtr& process, std::function<void()> what);

  // --- invariants, called at the events that they concern ---
  void term_taken(int term, int node);
  void rank_starts(const Rank& rank);
  void restored(AttemptKey key, std::int64_t step, std::uint64_t digest, const std::string& level);
  void launched(const launcher::Launch& what, int term, const launcher::RunState& state);
  void commit_begins(int term, int attempt);
  void committed(int term, AttemptKey key, std::int64_t step, const std::string& payload);
  void result_written(int term, const nlohmann::json& result);
  void leader_is_gone(const Leader& leader);
  /// It is recorded that the state of steps after `trusted`, up to `tainted`, may be wrong.
  void doubted(std::int64_t trusted, std::int64_t tainted) { doubted_.emplace_back(trusted, tainted); }
  void agent_left();  ///< by order of the leader: soon the script notices, and SLURM ends the rest

 private:
  void set_up();
  void fault();
  void mend();
  void requeue();
  void run_until(double end);
  bool over() const;
  void stop_process(const ProcessPtr& process, double seconds);
  void hang_storage(const char* whose, const std::vector<int>& of);
  void cut(int n, bool in, bool out);
  void heal();
  Agent* live_agent(int n);
  Leader* live_leader();
  void check_end();
  int any() { return random.below(node_count()); }

  bool tracing_;
  std::vector<std::string> trace_;
  int allocation_ = 0;
  bool ending_ = false, gone_ = false, only_hangs_ = false;
  std::string broken_;  ///< the invariant that does not hold: the schedule ends with this event
  std::set<AttemptKey> launched_;
  std::set<std::int64_t> ever_committed_;
  std::vector<std::pair<std::int64_t, std::int64_t>> doubted_;
  int interrupt_in_ = -1;
  bool interrupt_kills_ = false;
  double trouble_until_ = 0;
};

}  // namespace holdfast::sim
