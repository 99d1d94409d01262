#pragma once
// The leader's part in checkpoints: it counts votes, has a whole set committed, and sends the commit outcome.
// The loop only sees who has answered. A worker thread reads what the votes say, and commits: heartbeats must
// wait neither for a thousand votes nor for a disk. When the commit outcome is sent, and in another thread,
// old checkpoints are removed: no commit outcome waits for that.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/retention.hpp"
#include "src/config/run_config.hpp"
#include "src/control/message.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class CommitCoordinator {
 public:
  struct Handlers {
    /// Asked by the worker just before the rename; it owns what it touches, and throws when it cannot tell.
    std::function<bool()> still_leading;
    /// In the loop's thread, once for every checkpoint. Whoever has sent the outcome then calls tidy().
    /// `stalled_s`: that training waited for saves since the one before: the longest of any rank.
    std::function<void(const control::CommitOutcome&, const std::string& note, double stalled_s)> decided;
    /// In the loop's thread: retention has removed these steps.
    std::function<void(const std::vector<std::int64_t>&)> removed;
    /// Ranks of this node have voted because they had not heard the commit outcome.
    std::function<void(int node, const control::CommitOutcome&)> repeat;
  };
  CommitCoordinator(control::Loop& loop, std::filesystem::path checkpoints,
                    const config::Checkpoint& settings, Handlers handlers);

  /// An attempt, new or taken over: votes of older ones are void. `decided`: what an earlier leader has
  /// decided in it, step -> durable.
  void begin(checkpoint::Generation generation, int world, const std::map<std::int64_t, bool>& decided = {});
  void take(int node, control::NodeVotes votes);
  /// Removes what retention no longer keeps, if a checkpoint has become durable since the last call.
  void tidy();

 private:
  struct Pending {
    /// Used by the worker only: the loop hands it over with the votes, and lets go of it with the last ones.
    std::shared_ptr<checkpoint::Commit> commit;
    std::vector<bool> answered;     ///< by rank
    int missing = 0;                ///< ranks
    std::int64_t stall_us = 0;      ///< the longest that votes tell
    Clock::time_point first, last;  ///< when votes came
    control::Loop::Handle limit;
  };
  void settle(std::int64_t step);
  void conclude(std::int64_t step, int attempt, bool durable, const std::string& note);

  control::Loop& loop_;
  std::filesystem::path checkpoints_;
  checkpoint::Retention retention_;
  std::chrono::seconds vote_limit_;
  Handlers handlers_;
  checkpoint::Generation generation_;
  int world_ = 0;
  std::map<std::int64_t, Pending> pending_;
  /// Of this attempt, for votes that are repeated.
  std::map<std::int64_t, control::CommitOutcome> commit_outcomes_;
  bool busy_ = false;
  struct ToTidy {
    checkpoint::Generation generation;
    std::int64_t step = 0;
    bool retains = true;  ///< there are settings by which checkpoints of this kind go
  };
  /// Of the newest commit whose removals have not begun; others have, when `tidying_`.
  std::optional<ToTidy> to_tidy_;
  bool tidying_ = false;
  control::Worker worker_, remover_;
};

}  // namespace holdfast::launcher
