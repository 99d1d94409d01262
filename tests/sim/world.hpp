#pragma once
// One schedule: a run on a few nodes, faults for some time, then everything is repaired and the run must
// reach a defined end. Invariants are checked at the events that they concern; the first one that does not
// hold ends the schedule.
//
//   production code                                     played here
//   Agent, with Candidate, Leader, Signs, LogSpool      time, threads, connections (VirtualLoop, Network)
//   files of the run directory, whose calls may fail    processes of a node, ranks, PMIx servers, the
//   guardian or hang where threads make them; records, term and  (Node, Training); SLURM claim in the memory
//   of a node (a folder each)
//
// Not played: signals from SLURM to agents, what ranks log, processes that nobody knows, faults of a drill,
// checks of nodes that find anything.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "slurm/cluster.hpp"
#include "src/config/run_config.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/storage.hpp"
#include "tests/sim/training.hpp"

namespace holdfast::sim {

/// Bugs in what is played that can be switched on, to test that the invariants find them. (Bugs in production
/// code are put into copies of it: tests/sim/mutations.sh.)
enum class Bug { none, ranks_trust_all };

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

/// A world that is not left to chance, for failure_mix.cpp.
struct Fixed {
  int slots = 1, spares = 0;
  config::Supervise limits;
  Training::Settings training;
};

class World {
 public:
  World(std::uint64_t seed, Bug bug, Coverage& coverage, bool tracing,
        const std::optional<Fixed>& fixed = std::nullopt);
  ~World();
  /// Throws Broken.
  void play();
  // Before play(). The only fault is ...
  /// ... storage that hangs: no attempt ends by that, and no node is lost.
  void only_let_storage_hang();
  /// ... a rank that hangs, and perhaps the leader's process dies: its attempt ends within `noticed_s`.
  void only_let_ranks_hang();
  static constexpr double noticed_s = 40;
  std::string trace() const;

  // --- instead of play() ---
  void run_until(double end);  ///< or until the run is over
  bool over() const;
  /// After `queue_s`, on nodes that work.
  void requeue(double queue_s = 0);
  void cut(int n, bool in, bool out);

  // --- for nodes, and for the production code in them ---
  Timeline timeline;
  Random random;
  int slots, spares;
  Network network;
  SharedStorage storage;
  launcher::Roster roster;
  config::RunConfig config;
  control::Key secret{};
  std::shared_ptr<slurm::Cluster> slurm;
  bool corrupted = false;         ///< some rank has computed wrongly
  bool slurm_is_wrong = false;    ///< what it says of the job
  std::vector<double> slurm_s;    ///< how long slurmctld takes to answer a node
  std::vector<double> clock_off;  ///< seconds by which a node's clock is wrong
  std::vector<int> followed;      ///< the highest term of a leader that a node's agents have followed
  Bug bug;
  std::unique_ptr<Training> training;
  std::vector<std::unique_ptr<Node>> nodes;
  Coverage& coverage;

  Node& node(int n) { return *nodes[n]; }
  int node_count() const { return static_cast<int>(nodes.size()); }
  const std::string& name(int n) const { return roster.nodes[n].name; }
  void say(const std::string& text);
  void expect(bool holds, const std::string& what) const;
  double unix_now(int n) const { return 1.7e9 + timeline.now + clock_off[n]; }
  /// A chance for a leader to be stopped or to die between any two things that it does.
  void maybe_interrupt(const ProcessPtr& process, bool in_call = false);
  /// Does the work now, or while time passes, then calls `done`.
  void do_work(const ProcessPtr& process, std::function<void()> work, std::function<void()> done);
  void pass_time(Work& work, double seconds);
  /// Returns when SLURM answers the node of the present work; throws Error when it does not.
  void ask_slurm(std::chrono::milliseconds limit);
  void job_is_ended();
  /// The program does, in this attempt, as far as anybody can tell.
  void fails_itself(int attempt) { own_failures_.insert(attempt); }

  // --- what is seen from outside: of calls to storage ... ---
  Fate fate_of_call(Work& work, Kind kind);
  void own_thread_asks(const char* path);
  bool in_memory(int fd) const { return in_memory_.contains(fd); }  ///< of a node, not on shared storage
  void lies_in_memory(int fd, bool so);
  void opened(Work& work, int fd, const char* path, int flags);
  void has_read(Work& work);
  void written(int fd, std::string_view text);
  void cut_off(int fd);
  void synced(Work& work, int fd);
  void renamed(Work& work, const std::filesystem::path& from, const std::filesystem::path& to);
  // ... and of the lines that an agent's process sends, and hears on its connections to agents
  void sent(Connection& connection, int end, const std::string& line);
  void heard(const ProcessPtr& process, int from, const std::string& line);

  // --- invariants, called at the events that they concern ---
  void rank_starts(const Rank& rank);
  void restored(AttemptKey key, std::int64_t step, std::uint64_t digest, const std::string& level);
  void agent_is_gone(const AgentProcess& agent);
  void agent_left();  ///< by order of the leader: soon the script notices, and SLURM ends the rest

 private:
  void set_up(const std::optional<Fixed>& fixed);
  void set_up_by_chance(Training::Settings& training);
  void fault();
  void mend();
  void stop_process(const ProcessPtr& process, double seconds);
  void stop_agent(int n, double seconds);
  void hang_storage(const char* whose, const std::vector<int>& of);
  void let_rank_hang();
  RankPtr one_of(const std::vector<RankPtr>& ranks);
  void heal();
  AgentProcess* live_agent(int n);
  /// A program on a node tells its agent something.
  void tell_agent(int n, control::Hello::Role role, const control::Message& what);
  /// That of the highest term; null: none.
  const launcher::Leader* live_leader();
  void check_leader(const launcher::Leader& leader);
  void check_end();
  bool takes_time(const ProcessPtr& process);
  void continue_work(const WorkPtr& work);

  // Invariants of what leaders do.
  /// What a leader has on record, and what it has heard.
  struct Term {
    launcher::RunState state;
    std::set<std::string> out;  ///< nodes lost or evicted by the decisions so far
    double unix_offset = 0;     ///< of what it records, from virtual time
    std::map<int, std::vector<double>> beats;
    std::map<int, std::vector<std::pair<int, double>>>
        cleared;  ///< attempts that nodes have cleared, and when
  };
  /// Of the elections that a node holds for a term.
  struct Votes {
    std::set<std::string> lost;  ///< as it has read
    std::set<int> granted;
    bool won = false;
  };
  /// What a candidate knows of the log is not newer than its last read, and not older than its list of the
  /// files: a term may begin between the two.
  struct Asked {
    int term = 0;
    Votes listed, read;
    bool won() const { return listed.won || read.won; }
  };
  void answered(Votes& votes, int node, bool grant);
  void term_taken(int term, int node);
  void recorded(Work& work, int term, const launcher::LogEntry& entry);
  void check_decision(const Term& term, const launcher::LogEntry& entry) const;
  void launched(const control::StartRanks& order);
  void committed(const Work& work, std::int64_t step);
  void removed(std::int64_t step);
  void result_written(const Work& work);
  int any() { return random.below(node_count()); }

  bool tracing_;
  std::vector<std::string> trace_;
  int allocation_ = 0;
  bool ending_ = false, gone_ = false;
  enum class Only { nothing, storage_hangs, ranks_hang };
  Only only_ = Only::nothing;
  bool result_there_ = false;   ///< of this allocation
  mutable std::string broken_;  ///< the invariant that does not hold: the schedule ends with this event
  std::set<AttemptKey> launched_;
  std::set<int> own_failures_;                         ///< attempts in which the program did something wrong
  std::set<AttemptKey> cleared_;                       ///< with the term of the leader that ordered it
  std::map<AttemptKey, std::int64_t> durable_before_;  ///< of attempts that may start from any state
  std::set<std::int64_t> ever_committed_;
  std::vector<std::pair<std::int64_t, std::int64_t>> doubted_;
  bool in_trouble_ = false;       ///< there are faults now
  int interrupt_in_ = -1;         ///< after so many calls to storage and lines that are sent; -1: not
  bool interrupt_calls_ = false;  ///< only calls to storage count
  bool interrupt_kills_ = false;

  std::map<int, Term> terms_;
  std::map<int, Asked> asked_;
  /// Of an open file of the event log.
  struct OpenLog {
    int term = 0;
    std::string unsynced;
  };
  std::map<int, OpenLog> logs_;
  std::set<int> in_memory_;
  std::vector<WorkPtr> strands_;
};

}  // namespace holdfast::sim
