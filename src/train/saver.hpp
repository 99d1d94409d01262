#pragma once
// Saving: digests, this rank's shard, its vote; and in bare mode, where nobody leads, the commit on rank 0. A
// save that fails costs the checkpoint, never the run, and never touches the checkpoints before it.
#include <string>

#include "checkpoint/shard_writer.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"
#include "src/train/state_digest.hpp"
#include "src/train/state_views.hpp"

namespace holdfast::train {

class Saver {
 public:
  /// `views` and its memory outlive the saver; `generation`: of this attempt.
  Saver(const RunDir& dir, const config::Checkpoint& settings, const StateViews& views,
        const checkpoint::Facts& facts, checkpoint::Generation generation, comm::Communicator& world,
        control::RankLink& link);

  /// Collective, between two optimizer steps. Returns the digest of the state that was saved. Under an agent
  /// the commit goes on behind the next steps.
  StateDigest save(const checkpoint::RunPoint& point);
  /// Waits for the fate of the newest save: true when it is durable. The same on every rank.
  bool wait_durable();
  /// Why the newest save failed on this rank or in the commit, or "".
  const std::string& why() const { return why_; }

 private:
  void commit_here(const checkpoint::RunPoint& point, bool ok, const std::string& payload);

  RunDir dir_;
  config::Checkpoint settings_;
  const StateViews& views_;
  checkpoint::Generation generation_;
  comm::Communicator& world_;
  control::RankLink& link_;
  checkpoint::ShardWriter writer_;
  std::int64_t newest_ = -1;  ///< step of the newest save
  bool durable_ = false;      ///< bare mode: what became of it
  std::string why_;
};

}  // namespace holdfast::train
