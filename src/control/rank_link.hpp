#pragma once
// What a rank and the agent of its node say to each other. The trainer says it through RankLink, which does
// nothing in bare mode (srun without agents), so the trainer asks whether it is supervised only to choose who
// commits a checkpoint.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"

namespace holdfast::control {

/// What a rank is doing. Phase and step together are the progress that the agents watch.
enum class Phase {
  starting,
  restoring,
  data,
  forward,
  backward,
  collective,
  optimizer,
  checkpoint,
  finishing,
  paused  ///< by an order; not a hang
};
const char* name_of(Phase phase);

/// The source of a rank's restored state.
struct Restored {
  std::int64_t step = 0;  ///< optimizer steps done in the restored state; 0: a fresh start
  std::string level;      ///< the slowest level read: "local", "peer", "partner", "shared"; or "fresh"
  std::string digest;     ///< state digest after loading, 16 hex digits
  std::string note;       ///< why an older checkpoint was used, or ""
};

/// A request to save the state on the shared level soon.
struct Drain {
  bool stop = false;   ///< then the run ends with Exit::transient, to be continued by the next job
  std::string reason;  ///< "SIGTERM", "60 s before the time limit", "the batch host was lost"
  /// Unix seconds at which those that have not ended are killed, in an order to ranks; 0: not said.
  std::int64_t until = 0;
  bool operator==(const Drain&) const = default;
};

/// A fault to inject (holdfast drill); src/train/loop/injection.hpp lists the names.
struct Injection {
  std::string fault;
  double seconds = 0;
  std::uint64_t seed = 0;
};

/// The final state of a run (contract 1, result.json).
struct FinalState {
  std::int64_t step = 0, tokens = 0;
  double loss = 0;
  std::string state_digest;  ///< 16 hex digits
};

/// How long bulk operations of a rank awaited messages of other nodes, in a window of steps.
struct Waits {
  static constexpr int window = 10;             ///< steps; the last one is a multiple of it
  static constexpr std::size_t max_named = 16;  ///< nodes in `longest`
  struct Of {
    int rank = -1;  ///< the lowest one of the node
    std::int64_t us = 0;
  };
  std::int64_t step = 0;       ///< the last of the window
  std::int64_t window_us = 0;  ///< from its begin to its end
  int nodes = 0;               ///< from which anything came
  std::int64_t median_us = 0;  ///< over these nodes; the lower one of two
  std::vector<Of> longest;     ///< those that were awaited longest, the longest first
};

/// What the run is told between two steps.
struct Orders {
  std::optional<Drain> drain;  ///< the newest request; each is returned once
  bool pause = false;          ///< while the run is to hold still
};

/// As it is, the link of bare mode. Any thread may call it, progress() and computed() one at a time.
class RankLink {
 public:
  RankLink() = default;
  RankLink(const RankLink&) = delete;
  virtual ~RankLink() = default;
  /// True when an agent supervises this rank: then the leader commits checkpoints and writes result.json.
  virtual bool supervised() const { return false; }
  /// Cheap (a few atomics); the client's thread sends it.
  virtual void progress(std::int64_t /*step*/, Phase /*phase*/) {}
  /// Seconds of this rank's own work in the newest step, without waiting for others. Cheap.
  virtual void computed(double /*seconds*/) {}
  /// Of every window whose steps this rank has done. Does not wait.
  virtual void waited(const Waits& /*waits*/) {}
  /// Once.
  virtual void restored(const Restored& /*from*/) {}
  /// Two values that must be equal were not (logical rank 0 reports it): the leader replaces the node of the
  /// accused ranks. Returns once the agent has received it.
  virtual void doubt(std::int64_t /*step*/, const std::vector<int>& /*accused*/, const std::string& /*check*/,
                     const std::string& /*why*/) {}
  /// This rank's part of checkpoint `step` is fsynced (ok) or could not be written (`payload` then says why).
  /// `payload` is JSON text, opaque here (checkpoint/index/commit.hpp reads it). `stall_s`: that training
  /// waited for saves and snapshots since the vote before.
  virtual void vote(std::int64_t /*step*/, bool /*ok*/, const std::string& /*payload*/, double /*stall_s*/) {}
  /// Waits for the leader's outcome of checkpoint `step`: true when it is durable, false when it was dropped
  /// or the deadline has passed.
  virtual bool wait_commit(std::int64_t /*step*/, const Deadline& /*deadline*/) { return false; }
  /// Rank 0 decides for all.
  virtual Orders take_orders() { return {}; }
  /// A fault that this rank is to inject. Each one is returned once.
  virtual std::optional<Injection> take_injection() { return std::nullopt; }
  /// The rank's work is done; logical rank 0 sends the final state. Returns once the agent has received it.
  virtual void finished(const std::optional<FinalState>& /*state*/) {}
  /// The rank gives up; `exit_code` and `why` reach the leader before the process ends. Never throws.
  virtual void failed(int /*exit_code*/, const std::string& /*why*/) noexcept {}
};

}  // namespace holdfast::control
