// Whatever is lost or damaged of the levels, the ranks go on from the best point that is left: against a
// model that knows what was done to the files, and nothing of how they are read. Cases are generated; there
// are more with HOLDFAST_DISRUPTIONS=N.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "src/base/as_size.hpp"
#include "src/base/env.hpp"
#include "tests/train/disrupted_run.hpp"

namespace holdfast::train {
namespace {

using config::Strategy;
using testing::Cluster;
using testing::DisruptedRun;
using testing::RestartOptions;
namespace fs = std::filesystem;

struct Buffer {
  std::int64_t step = -1;  ///< -1: nothing is sealed here
  std::set<int> bad;
};
struct File {
  int node = 0, of = 0;
  bool copy = false;
  Buffer buffers[2];
};
struct Shared {
  std::int64_t step = 0;
  std::set<std::pair<int, int>> bad;  ///< kind and piece
  bool missing = false;               ///< a shard: it may be sound
};

/// What is left, and what can be done with it.
struct Model {
  const DisruptedRun& run;
  std::vector<int> node_of;
  std::vector<File> files;
  std::vector<Shared> shared;
  bool local = true, network = true;
  bool saved = false;  ///< there is a checkpoint, in whatever state

  /// The fastest level that has the piece at this step; nothing: none has.
  std::optional<Level> best(int rank, int piece, std::int64_t step) const {
    std::optional<Level> out;
    const int node = node_of[rank];
    for (const File& file : files) {
      const bool same_node = file.node == node;
      const bool seen = std::find(node_of.begin(), node_of.end(), file.node) != node_of.end();
      if (!local || !seen || (!same_node && !network) || run.kind(file.of) != run.kind(rank)) continue;
      const Level level = file.copy                      ? Level::partner
                          : file.of == rank && same_node ? Level::local
                                                         : Level::peer;
      for (const Buffer& buffer : file.buffers)
        if (buffer.step == step && !buffer.bad.contains(piece)) out = std::min(level, out.value_or(level));
    }
    for (const Shared& s : shared)
      if (!out && s.step == step && !s.bad.contains({run.kind(rank), piece})) out = Level::shared;
    return out;
  }
  /// The slowest level needed for this step; nothing: it is not whole.
  std::optional<Level> whole(std::int64_t step) const {
    Level slowest = Level::local;
    for (int rank = 0; rank < run.world(); ++rank)
      for (int piece = 0; piece < run.pieces(rank); ++piece) {
        const auto level = best(rank, piece, step);
        if (!level) return std::nullopt;
        slowest = std::max(slowest, *level);
      }
    return slowest;
  }
  std::optional<std::pair<std::int64_t, Level>> newest() const {
    std::set<std::int64_t, std::greater<>> steps;
    for (const File& file : files)
      for (const Buffer& buffer : file.buffers)
        if (buffer.step >= 0) steps.insert(buffer.step);
    for (const Shared& s : shared) steps.insert(s.step);
    for (const std::int64_t step : steps)
      if (const auto level = whole(step)) return std::pair(step, *level);
    return std::nullopt;
  }
  /// How a restore has to fail that would else go on from `newest` or from step 0; nothing: it does not.
  std::optional<Exit> failure(const std::optional<std::pair<std::int64_t, Level>>& newest) const {
    for (const Shared& s : shared)
      if (s.missing && (!newest || newest->first < s.step)) return Exit::transient;
    if (!newest && saved) return Exit::no_requeue;
    return std::nullopt;
  }
};

/// One generated case: files, what is done to them, and where the ranks begin again.
class Case {
 public:
  Case(const Cluster& cluster, std::uint64_t seed, const fs::path& root, const fs::path& checkpoints)
      : random_(seed), run_(cluster, root), model_{run_, {}, {}, {}}, cluster_(cluster) {
    story_ << "seed " << seed << ":";
    fs::copy(checkpoints, run_.dir().checkpoints(), fs::copy_options::recursive);
    for (const std::int64_t step : checkpoint::committed_steps(run_.dir().checkpoints())) {
      if (below(3) == 0)
        fs::remove_all(checkpoint::committed_path(run_.dir().checkpoints(), step));
      else
        model_.shared.push_back({step, {}}), model_.saved = true;
    }
    for (int rank = 0; rank < run_.world(); ++rank) model_.node_of.push_back(rank / cluster.ranks_per_node);
    const bool copies = cluster.nodes > 1 && below(2) == 0, behind = below(2) == 0;
    for (int rank = 0; rank < run_.world(); ++rank) {
      const int node = model_.node_of[rank];
      write(node, rank, false, behind);
      if (copies) write((node + 1) % cluster.nodes, rank, true, behind);
    }
    for (int n = below(7); n > 0; --n) disrupt();
    move();
    model_.local = below(8) != 0;
    model_.network = below(8) != 0;
    if (!model_.network) story_ << " no network;";
  }

  void check(std::map<std::string, int>& seen) {
    SCOPED_TRACE(story_.str());
    const auto expected = model_.newest();
    tests::FakeNetwork network(run_.world());
    RestartOptions options;
    options.local = model_.local;
    options.network_breaks = !model_.network;
    if (const auto exit = model_.failure(expected)) {
      for (const Error& error : run_.failed_restart(model_.node_of, options, network))
        ASSERT_EQ(error.exit(), *exit) << error.what();
      ++seen[*exit == Exit::transient ? "later" : "never"];
      return;
    }
    const auto after = run_.restart(model_.node_of, options, network);
    for (const auto& rank : after) {
      ASSERT_EQ(rank.from.fresh, !expected) << rank.from.note;
      if (!expected) continue;
      ASSERT_EQ(rank.from.point, run_.point(expected->first)) << rank.from.note;
      ASSERT_EQ(rank.from.level, name_of(expected->second));
      ASSERT_TRUE(rank.holds_truth);
      ASSERT_EQ(rank.sealed, model_.local);
      ASSERT_EQ(rank.from.digest, run_.digest(expected->first));
      ASSERT_EQ(rank.from.note, after.front().from.note);
      if (expected->second == Level::shared) {
        ASSERT_GT(rank.from.bytes_read, 0);
      }
    }
    ++seen[expected ? name_of(expected->second) : "fresh"];
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  /// Two buffers, as a run that was stopped anywhere leaves them.
  void write(int node, int of, bool copy, bool behind) {
    File file{node, of, copy, {}};
    const std::int64_t newest = behind && below(3) == 0 ? 99 : 100;
    const int first = below(2);
    file.buffers[first].step = newest;
    if (below(4) != 0) file.buffers[1 - first].step = newest - 1;
    for (int buffer = 0; buffer < 2; ++buffer)
      if (file.buffers[buffer].step >= 0) run_.snapshot(node, of, copy, buffer, file.buffers[buffer].step);
    model_.files.push_back(file);
  }

  void disrupt() {
    if (below(3) == 0) {
      disrupt_shared();
      return;
    }
    if (model_.files.empty()) return;
    const int i = below(static_cast<int>(model_.files.size())), buffer = below(2);
    File& file = model_.files[i];
    story_ << " " << (file.copy ? "copy" : "own") << " of " << file.of << " on " << file.node;
    const fs::path path = run_.file(file.node, file.of, file.copy);
    switch (below(7)) {
      case 0:
        story_ << " erased;";
        fs::remove_all(path);
        model_.files.erase(model_.files.begin() + i);
        return;
      case 1:
        story_ << " unsealed in " << buffer << ";";
        run_.unseal(file.node, file.of, file.copy, buffer);
        file.buffers[buffer] = {};
        return;
      case 2:
        story_ << " with a bad seal of " << buffer << ";";
        checkpoint::testing::flip_bit(path / std::to_string(buffer) / "seal",
                                      static_cast<std::uint64_t>(below(8 * 64)));
        file.buffers[buffer] = {};
        return;
      case 3:
        story_ << " replaced by one of another run;";
        run_.snapshot(file.node, file.of, file.copy, buffer, 200, 43);
        model_.files.erase(model_.files.begin() + i);
        return;
      case 4: {
        const int node = file.node;
        story_ << ": all on that node erased;";
        fs::remove_all(run_.folder(node));
        std::erase_if(model_.files, [&](const File& f) { return f.node == node; });
        return;
      }
      default: {
        if (file.buffers[buffer].step < 0 || run_.pieces(file.of) == 0) return;
        for (int n = 1 + below(3); n > 0; --n) {
          const int piece = below(run_.pieces(file.of));
          if (!file.buffers[buffer].bad.insert(piece).second) continue;  // twice would be as before
          story_ << " piece " << piece << " of buffer " << buffer;
          run_.flip(file.node, file.of, file.copy, buffer, piece, random_());
        }
        story_ << " flipped;";
      }
    }
  }

  void disrupt_shared() {
    if (model_.shared.empty()) return;
    const int i = below(static_cast<int>(model_.shared.size())), writer = below(run_.world());
    Shared& shared = model_.shared[i];
    const auto lost = run_.pieces_of_writer(writer);
    story_ << " checkpoint " << shared.step;
    if (below(4) == 0) {
      story_ << " with a bad manifest;";
      checkpoint::testing::flip_bit(
          checkpoint::committed_path(run_.dir().checkpoints(), shared.step) / checkpoint::manifest_file_name,
          static_cast<std::uint64_t>(below(8 * 400)));
      model_.shared.erase(model_.shared.begin() + i);
      return;
    }
    if (lost.empty() || !damaged_.insert({shared.step, writer}).second) return;
    story_ << " with a bad shard " << writer << ";";
    if (below(2) == 0)
      fs::remove(run_.shard(shared.step, writer)), shared.missing = true;
    else if (!run_.flip_shard(shared.step, writer, random_()))
      return;
    for (const int piece : lost) shared.bad.insert({run_.kind(writer), piece});
  }

  /// Ranks begin again where they were, on a spare node, or with two nodes' ranks exchanged.
  void move() {
    const int how = below(3), a = below(cluster_.nodes), b = (a + 1) % cluster_.nodes;
    for (int& node : model_.node_of) {
      if (how == 1 && node == a)
        node = cluster_.nodes;
      else if (how == 2 && (node == a || node == b))
        node = node == a ? b : a;
    }
    if (how == 1) story_ << " node " << a << " replaced;";
    if (how == 2) story_ << " nodes " << a << " and " << b << " exchanged;";
  }

  std::mt19937_64 random_;
  DisruptedRun run_;
  Model model_;
  Cluster cluster_;
  std::set<std::pair<std::int64_t, int>> damaged_;
  std::ostringstream story_;
};

TEST(Disruptions, TheBestPointThatIsLeftIsFound) {
  const std::vector<Cluster> clusters = {
      {Strategy::hybrid_shard, 0, 2, 2}, {Strategy::full_shard, 0, 2, 2},
      {Strategy::no_shard, 0, 3, 1},     {Strategy::hfsdp, 0, 2, 2, DType::bf16},
      {Strategy::hybrid_shard, 2, 1, 4}, {Strategy::shard_grad_op, 0, 3, 1, DType::bf16},
      {Strategy::hfsdp, 2, 4, 1},        {Strategy::full_shard, 0, 5, 1},
      {Strategy::no_shard, 0, 1, 1},     {Strategy::hybrid_shard, 4, 4, 2}};
  const int cases = static_cast<int>(env::get_integer("HOLDFAST_DISRUPTIONS").value_or(200));
  std::map<std::string, int> seen;
  std::vector<std::unique_ptr<checkpoint::testing::Folder>> saved;
  for (const Cluster& cluster : clusters) {
    saved.push_back(std::make_unique<checkpoint::testing::Folder>());
    const DisruptedRun run(cluster, saved.back()->path());
    for (const std::int64_t step : {90, 99, 100}) run.save(step);
  }
  for (int i = 0; i < cases && !HasFatalFailure(); ++i) {
    const auto k = as_size(i) % clusters.size();
    const checkpoint::testing::Folder folder;
    Case(clusters[k], static_cast<std::uint64_t>(i) + 1, folder.path(), saved[k]->path() / "run/checkpoints")
        .check(seen);
  }
  if (cases < 200) return;
  for (const char* how : {"local", "peer", "partner", "shared", "later"})
    EXPECT_GE(seen[how], cases / 200) << "no case ended " << how;
}

}  // namespace
}  // namespace holdfast::train
