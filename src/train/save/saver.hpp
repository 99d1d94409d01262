#pragma once
// Saving to the shared level, beside training. A save that fails costs the checkpoint, never the run, and
// never touches the checkpoints before it.
//
//   a save     where                                                                next
//   begun      between two optimizer steps: a snapshot is held; the training thread  hand_over() -> written
//   written    by the saver's thread from the snapshot buffer, which it gives back;  -> settled
//              it then votes
//   settled    the leader commits, or in bare mode rank 0's saver
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
#include "checkpoint/shards/shard_writer.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"
#include "src/train/local/snapshots.hpp"

namespace holdfast::train {

/// Totals of this rank.
struct SaveTotals {
  std::int64_t begun = 0;    ///< a snapshot is held
  std::int64_t skipped = 0;  ///< since the one before was still being written (checkpoint.when_busy)
  std::int64_t failed = 0;   ///< not written by this rank or, in bare mode on rank 0, not committed
  std::int64_t settled = 0;  ///< written and voted for or, in bare mode on rank 0, committed or dropped
  double stall_s = 0;        ///< that training waited
  double persist_s = 0;      ///< of the save settled last: from hand_over()
  checkpoint::WriteCost cost = {};  ///< of the shard written last
};

/// Writes the pieces as this rank's shard, and returns its vote and what that cost: ShardWriter::write().
struct Written {
  std::string vote;
  checkpoint::WriteCost cost;
};
using WriteShard =
    std::function<Written(const checkpoint::RunPoint& point, std::span<const checkpoint::PieceView> pieces)>;

class Saver {
 public:
  struct Parts {
    WriteShard write;
    /// The pieces that this rank writes, in the writer's order; of their memory nothing is read.
    const checkpoint::State& owned;
    /// Where it is set, called before each vote on the saver's thread, which may wait: for the metrics of the
    /// steps before, so that a run that is resumed from the checkpoint finds them.
    std::function<void()> before_vote = {};
    Millis shortest_wait{10'000};  ///< for the save before, see begin()
  };
  /// `generation`: of this attempt. References outlive the saver.
  Saver(const RunDir& dir, const config::Checkpoint& settings, checkpoint::Generation generation, Parts parts,
        Snapshots& snapshots, comm::Communicator& world, control::RankLink& link);
  /// A write that is going on is finished, what waits behind it is dropped, and no vote is waited for. What
  /// retention has to remove is removed.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// True while a save is being written: the next one would have to wait.
  bool busy() const { return snapshots_.holds(); }

  /// Begins to save the state as it is now. While one is being written: waits when it `must` (up to
  /// checkpoint.commit_s) or the settings say so (up to twice what the last write took, between
  /// shortest_wait and commit_s, and after that in vain no more before that one is written); else, and when
  /// that was too short, votes no. `stalled_s`: that steps have waited for snapshots since the save before;
  /// the vote tells it, with the wait of this call.
  void begin(const checkpoint::RunPoint& point, bool must, double stalled_s = 0);
  /// What was begun may be written, and become durable.
  void hand_over();
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
    std::optional<Snapshots::Held> snapshot;  ///< nothing: skipped
    Clock::time_point begun{};
    double stalled_s = 0;
  };
  struct Outcome {
    bool ok = true;
    std::string payload;  ///< the vote, or why there is none
  };

  /// No snapshot is held. False: not in time.
  bool wait_written(std::int64_t step, bool must);
  void serve();
  void persist(const Job& job);
  Outcome write(const Job& job);
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
  Snapshots& snapshots_;
  comm::Communicator& world_;
  control::RankLink& link_;
  std::vector<checkpoint::State> owned_;  // in each snapshot buffer
  std::optional<Job> begun_;              // the training thread's
  std::int64_t newest_ = -1;              // its step
  bool stuck_ = false;                    // the save before was not written in the time of a wait, nor since

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
