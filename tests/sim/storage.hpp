#pragma once
// The shared file system: a real folder, which production code reads and writes by its own calls. Work of a
// simulated process (VirtualLoop::thread) makes them; calls.cpp stands before those of the C library, so that
// each of them can fail, wait, or be the last of its process, and so that the invariants see what it does.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "launcher/supervise/journal.hpp"
#include "src/base/as_size.hpp"
#include "src/base/run_dir.hpp"
#include "tests/sim/network.hpp"
#include "tests/support/fiber_switch.hpp"

namespace holdfast::sim {

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
  int highest() const;
  int terms() const;
  const launcher::RunState& replay() const;
  std::optional<nlohmann::json> result() const;
  void terms_changed() { highest_.reset(); }
  void events_changed() { replayed_.reset(); }

 private:
  mutable std::optional<int> highest_;
  mutable std::optional<launcher::RunState> replayed_;
};

/// Work in the midst of which time passes: a fiber that runs only while the simulator waits for it. It must
/// be done when it is destroyed.
class Strand {
 public:
  explicit Strand(std::function<void()> work) : work_(std::move(work)) {}
  ~Strand() { test::FiberSwitch::drop(fiber_); }
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;
  void go_on();                                    ///< returns when it waits or is done
  void wait() { switch_.suspend(fiber_, false); }  ///< by the work
  bool done() const { return done_; }

 private:
  /// What the C++ library keeps of a thread (of the Itanium C++ ABI, 2.2.2).
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static void enter();
  std::function<void()> work_;
  test::FiberSwitch switch_{512 << 10};
  test::FiberSwitch::Context fiber_;
  Exceptions exceptions_;
  Caller caller_;
  bool began_ = false, done_ = false;
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

enum class Kind { look, read, write, sync, change };
/// What becomes of a call.
struct Fate {
  int error = 0;         ///< 0: it succeeds
  bool happens = false;  ///< it fails, and happens all the same ...
  double part = 1;       ///< ... so much of a write
};

}  // namespace holdfast::sim
