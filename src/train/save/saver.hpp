#pragma once
// Saving to the shared level, beside training. A save that fails costs the checkpoint, never the run, and
// never touches the checkpoints before it.
//
//   a save     where                                                                next
//   copied     between two optimizer steps, into an arena; the training thread      join() -> waiting
//   waiting    behind the saves before it                                           -> written
//   written    by the saver's thread, which then votes                              -> settled
//   settled    the leader commits, or in bare mode rank 0's saver                   its arena was free before
//
// In bare mode a thread of rank 0's saver then removes old checkpoints, for which nobody waits.
//
// No step of it is collective: a rank that dies or is slow delays nobody but the commit.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/index/commit.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"
#include "src/train/save/image_writer.hpp"
#include "src/train/state/arena_pool.hpp"
#include "src/train/state/state_copier.hpp"

namespace holdfast::train {

/// Totals of this rank.
struct SaveTotals {
  std::int64_t begun = 0;    ///< snapshots taken
  std::int64_t skipped = 0;  ///< not taken, since all arenas were still being written (checkpoint.when_busy)
  std::int64_t failed = 0;   ///< not written by this rank or, in bare mode on rank 0, not committed
  std::int64_t settled = 0;  ///< written and voted for or, in bare mode on rank 0, committed or dropped
  double stall_s = 0;        ///< that training waited
  double persist_s = 0;      ///< of the save settled last: from the end of its copy
  checkpoint::WriteCost cost = {};  ///< of the shard written last
};

class Saver {
 public:
  struct Parts {
    std::unique_ptr<ImageWriter> writer;
    std::unique_ptr<StateCopier> copier;
    int arenas = 2;  ///< snapshots on their way to disk, 1 or 2; 0: as of ArenaPool
    /// Where it is set, called before each vote on the saver's thread, which may wait: for the metrics of the
    /// steps before, so that a run that is resumed from the checkpoint finds them.
    std::function<void()> before_vote = {};
    Millis shortest_wait{10'000};  ///< for an arena, see begin()
  };
  /// `generation`: of this attempt. Memory of the arenas comes from `device`. References outlive the saver.
  Saver(const RunDir& dir, const config::Checkpoint& settings, checkpoint::Generation generation, Parts parts,
        device::Device& device, comm::Communicator& world, control::RankLink& link);
  /// A write that is going on is finished, what waits behind it is dropped, and no vote is waited for. What
  /// retention has to remove is removed.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Bytes of the arenas that stay.
  std::int64_t memory_bytes() const { return arenas_.bytes(); }
  /// True while a save would have to wait for an arena.
  bool busy() { return !arenas_.has_free(); }

  /// Begins to copy `owned`: the pieces that this rank writes, in the writer's order (empty ones are passed
  /// over), where they lie now. They stay as they are until join(). While all arenas are being written:
  /// waits when it `must` (up to checkpoint.commit_s) or the settings say so (up to twice what the last
  /// write took, between shortest_wait and commit_s, and after that in vain no more before an arena is free
  /// again); else, and when that was too short, votes no.
  void begin(const checkpoint::RunPoint& point, const checkpoint::State& owned, bool must);
  /// Before the state changes: waits for the copy and hands it to the writing thread. Returns the seconds
  /// that it took.
  double join();
  /// Collective: waits for the fate of the newest save; true when it is durable. The same on every rank.
  bool wait_durable();
  /// Of the newest save; -1: there was none.
  std::int64_t newest_step() const { return newest_; }
  /// Why the newest save failed on this rank or in the commit here, or "".
  std::string why();
  SaveTotals totals();

 private:
  struct Job {
    checkpoint::RunPoint point;
    std::span<std::byte> arena;  ///< empty: skipped
    Clock::time_point copied{};
  };
  struct Outcome {
    bool ok = true;
    std::string payload;  ///< the vote, or why there is none
  };

  std::optional<std::span<std::byte>> take_arena(std::int64_t step, bool must);
  void serve();
  void persist(Job& job);
  Outcome write(Job& job);
  // Bare mode:
  void vote_in_folder(const Job& job, const Outcome& outcome);
  void commit(const Job& job, const Outcome& outcome);
  void record(std::span<const std::int64_t> durable, std::span<const std::int64_t> removed);
  void tidy();
  void failed(std::int64_t step, std::string why);

  RunDir dir_;
  config::Checkpoint settings_;
  checkpoint::Generation generation_;
  Parts parts_;
  comm::Communicator& world_;
  control::RankLink& link_;
  ArenaPool arenas_;
  std::vector<Copy> copies_;
  std::optional<Job> copying_;  // the training thread's
  std::int64_t newest_ = -1;    // its step
  bool stuck_ = false;          // no arena was given back in the time of a wait, and none since

  std::atomic<bool> ending_{false};
  // Guarded by mutex_:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;      // oldest first; the first one is being written
  std::int64_t durable_ = -1;  // bare mode, rank 0: the step committed last
  std::int64_t failed_ = -1;   // the step whose save failed last, and why
  std::string why_;
  SaveTotals totals_;
  std::optional<std::int64_t> to_tidy_;  // bare mode, rank 0: the newest step after which nothing was removed

  std::mutex record_mutex_;  // of durable.json
  std::thread thread_, tidier_;
};

}  // namespace holdfast::train
