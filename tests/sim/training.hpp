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
#include "tests/sim/network.hpp"
#include "tests/sim/storage.hpp"

namespace holdfast::sim {

class Node;

/// State digest after `step` optimizer steps.
std::uint64_t digest_after(std::int64_t step);
std::string hex(std::uint64_t digest);
/// What each shard file of a checkpoint holds.
std::string shard_text(std::uint64_t digest, int term, int attempt);

struct AttemptKey {
  int number = 0, term = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

/// One process of a training program.
struct Rank {
  int rank = 0;
  AttemptKey attempt;
  int node = 0;
  ProcessPtr process;
  bool hung = false;
  bool drain_heard = false, stop_heard = false, pause_heard = false;
  std::int64_t step = -1;
  control::Phase phase = control::Phase::starting;
  std::optional<control::RankRestored> restored;
  std::map<std::int64_t, control::RankVote> votes;  ///< without a commit outcome
  std::optional<control::RankFinished> finished;
  std::optional<int> last_word;  ///< the exit code, once its agent has received its messages
};
using RankPtr = std::shared_ptr<Rank>;

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
  };
  struct Hooks {
    std::function<Node&(int node)> node;
    std::function<void(const Rank&)> rank_started;  ///< checks
    std::function<void(AttemptKey, std::int64_t step, std::uint64_t digest, const std::string& level)>
        restored;
    std::function<void(const std::string&)> trace;
  };
  Training(Timeline& timeline, Random& random, Network& network, SharedStorage& storage, Settings settings,
           Hooks hooks);

  /// Starts a rank's process on `node`; the attempt has `slots` of `per_node` ranks each.
  RankPtr start(AttemptKey attempt, int rank, int node, int slots, int per_node, std::int64_t trusted_step);
  /// Its process ends now; the others of its attempt notice it by a message (`quiet`: none, for the node
  /// failed).
  void end(const RankPtr& rank, int status, bool quiet);
  void commit_outcome(Rank& rank, const control::CommitOutcome& what);
  /// Its agent has received all its messages.
  void taken(const RankPtr& rank);
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
