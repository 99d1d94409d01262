#pragma once
// The shared file system: a real folder, which production code reads and writes by its own calls. Work of a
// simulated process (VirtualLoop::thread) makes them; calls.cpp stands before those of the C library, so that
// each of them can fail, wait, or be the last of its process, and so that the invariants see what it does.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <semaphore>
#include <thread>
#include <vector>

#include "launcher/supervise/journal.hpp"
#include "src/base/as_size.hpp"
#include "src/base/run_dir.hpp"
#include "tests/sim/network.hpp"

namespace holdfast::sim {

class World;

struct SharedStorage {
  explicit SharedStorage(int nodes);
  ~SharedStorage();
  SharedStorage(const SharedStorage&) = delete;
  SharedStorage& operator=(const SharedStorage&) = delete;

  RunDir run;
  std::filesystem::path folder;  ///< of it and of what is not shared
  std::filesystem::path memory_of(int node) const { return folder / ("node-" + std::to_string(node)); }
  bool holds(std::string_view path) const { return path.starts_with(run.path.native()); }
  bool up = true;
  bool vanishes = false;  ///< where it is gone, there is an empty folder instead of it
  std::vector<bool> mounted;
  bool reachable(int node) const { return up && mounted[node]; }

  std::vector<double> hung_until, errs_until;  ///< by node
  /// A call that a node begins now returns after so many seconds.
  double takes(int node, double now) const { return std::max(0.0, hung_until[node] - now); }
  void hang(int node, double until) { hung_until[node] = std::max(hung_until[node], until); }

  // As it is, whoever can reach it.
  int highest() const { return launcher::highest_valid_term(run); }
  int terms() const;
  launcher::RunState replay() const { return launcher::replay(run); }
  std::optional<nlohmann::json> result() const;
};

/// Work in the midst of which time passes: a thread that runs only while the simulator waits for it.
class Strand {
 public:
  explicit Strand(std::function<void()> work);
  ~Strand() { thread_.join(); }
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;
  void go_on();  ///< returns when it waits or is done
  void wait();   ///< by the work
  bool done() const { return done_; }

 private:
  std::binary_semaphore go_{0}, back_{0};
  bool done_ = false;
  std::thread thread_;
};

/// A piece of work of a process.
struct Work : std::enable_shared_from_this<Work> {
  Work(World& w, ProcessPtr p) : world(w), process(std::move(p)), term(process->term) {}
  World& world;
  ProcessPtr process;
  int term;                        ///< that the process leads
  bool led = false;                ///< its term was the highest at a moment of this work
  bool only_changes_wait = false;  ///< for storage that hangs: what it reads is in its node's cache
  std::unique_ptr<Strand> strand;  ///< null: no time passes
  std::function<void()> done;
};
using WorkPtr = std::shared_ptr<Work>;

/// What makes calls now; null: the simulator itself.
Work*& present_work();
/// The simulator's own calls, in the midst of some work.
struct Aside {
  Aside() : work(std::exchange(present_work(), nullptr)) {}
  ~Aside() { present_work() = work; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  Work* work;
};

enum class Kind { look, read, write, sync, change };
/// What becomes of a call.
struct Fate {
  int error = 0;         ///< 0: it succeeds
  bool happens = false;  ///< it fails, and happens all the same ...
  double part = 1;       ///< ... so much of a write
};

}  // namespace holdfast::sim
