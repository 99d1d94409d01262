#pragma once
// The ranks of all attempts: they step together or not at all, save state in the levels of the trainer, and
// end as programs do. State is a digest chained over the steps, so it depends on the step alone.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/control/message.hpp"
#include "tests/sim/rank.hpp"
#include "tests/sim/storage.hpp"

namespace holdfast::sim {

class Node;

/// State digest after `step` optimizer steps.
std::uint64_t digest_after(std::int64_t step);
std::string hex(std::uint64_t digest);
/// What each shard file of a checkpoint holds.
std::string shard_text(std::uint64_t digest, int term, int attempt);

/// The copies of one slot's shard in a node's memory; they outlive the processes, but not the node.
struct LocalCopy {
  std::int64_t step = -1;
  std::uint64_t digest = 0;
};

class Training {
 public:
  struct Settings {
    std::int64_t steps = 20;
    int checkpoint_every = 5;
    double step_s = 0.5;
    double commit_wait_s = 20;  ///< how long an ending rank waits for the last one
    int verify_every = 5;       ///< steps between comparisons, and at the end
    /// What else the start of ranks takes, and to load the state of a level.
    double launch_s = 0, restore_local_s = 0, restore_shared_s = 0;
  };
  struct Hooks {
    std::function<Node&(int node)> node;
    std::function<void(const RankPtr&, int status)> ends;  ///< its process
    std::function<void(const Rank&)> rank_started;         ///< checks
    std::function<void(AttemptKey, std::int64_t step, std::uint64_t digest, const std::string& level)>
        restored;
    std::function<void(const std::string&)> trace;
  };
  Training(Timeline& timeline, Random& random, Network& network, SharedStorage& storage, Settings settings,
           Hooks hooks);

  /// What `process` does as a rank.
  RankPtr start(const RankEnv& at, const ProcessPtr& process);
  /// Its process has ended: those of the other ranks of its attempt notice.
  void ended(const Rank& rank, int status);
  /// This rank has computed wrongly: the state of its attempt is wrong, and so are its checkpoints, until a
  /// comparison detects it.
  void corrupt(const Rank& rank);
  const Settings& settings() const { return settings_; }
  /// Highest step that any attempt has reached with correct state, for the coverage count.
  std::int64_t reached() const { return reached_; }

 private:
  struct Attempt {
    int slots = 0, per_node = 1;
    std::int64_t trusted = -1;
    std::map<int, RankPtr> ranks;
    double loaded_at = -1;  ///< while the state is loaded
    bool restored = false, victims_end = false, ending = false;
    int wrong = -1;                ///< the rank that computed wrongly
    bool doubted = false;          ///< a comparison has detected it
    std::int64_t right_until = 0;  ///< the newest step whose comparison passed
    std::int64_t step = 0, asked_save = -1;
    std::uint64_t digest = 0;
    std::set<std::int64_t> voted;
    std::int64_t waits_for = -1;
    double waits_until = 0;
    int last_code = 0;
  };
  void go(AttemptKey key);
  bool together(const Attempt& a) const;
  void restore(AttemptKey key, Attempt& a);
  void one_step(AttemptKey key, Attempt& a);
  static void compare(Attempt& a);
  void keep_locally(const Attempt& a);
  void vote(AttemptKey key, Attempt& a);
  control::RankVote write_shard(const Rank& rank, const Attempt& a, std::int64_t step, std::uint64_t digest);
  void finish(AttemptKey key, Attempt& a);
  void set_phase(Attempt& a, control::Phase phase);
  void commit_outcome(AttemptKey key, int rank, const control::CommitOutcome& what);
  void end_soon(AttemptKey key, int rank);
  void fail(const RankPtr& rank, int status, const std::string& why);

  Timeline& timeline_;
  Random& random_;
  Network& network_;
  SharedStorage& storage_;
  Settings settings_;
  Hooks hooks_;
  std::map<AttemptKey, Attempt> attempts_;
  std::int64_t reached_ = 0;
};

}  // namespace holdfast::sim
