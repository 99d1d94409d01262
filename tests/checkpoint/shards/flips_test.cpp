// Thousands of small damages, one at a time, to a checkpoint of several shards with an older one beside it:
// none is silent, none kills the reader, and what a run goes on from is always a state that was saved.
//
// HOLDFAST_FLIPS is the number of flipped bits; 12000 take about a minute.
#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/verify/verify.hpp"
#include "src/base/as_size.hpp"
#include "src/base/env.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

struct Flips : ::testing::Test {
  const Folder folder;
  /// Several blocks to a shard, pieces that share one, and a shard's worth of small ones.
  const std::vector<LogicalTensor> tensors = {{"model/embed", 211, 307},
                                              {"model/norm", 1, 67},
                                              {"optim/exp_avg/embed", 211, 307, DType::bf16},
                                              {"optim/exp_avg/norm", 1, 67, DType::bf16}};
  const WriterLayout layout = ragged_layout(tensors, 3, 4), reader = even_layout(tensors, 2);
  Whole older{tensors, 5}, newer{tensors, 10};
  const fs::path older_dir = save(folder.path(), older, 5, {1, 1}, layout).path;
  const fs::path step_dir = save(folder.path(), newer, 10, {1, 1}, layout).path;
  const Manifest manifest = read_manifest(step_dir);

  /// The step that a run would go on from; -1 when it is not the state that was saved, `waits` when it would
  /// ask again, since nothing is proven.
  static constexpr std::int64_t waits = -2;
  std::int64_t resumed() const {
    for (const std::int64_t step : committed_steps(folder.path())) {
      const Condition condition = condition_of(committed_path(folder.path(), step), step);
      if (condition.kind == Condition::Kind::unknown) return waits;
      if (condition.kind == Condition::Kind::damaged) continue;
      try {
        const auto loaded = load_all(committed_path(folder.path(), step), tensors, reader);
        return loaded == (step == 10 ? newer : older).values ? step : -1;
      } catch (const Damaged&) {
      }
    }
    return 0;
  }
  bool verify_complains() const { return !verify(step_dir).problems.empty(); }
};

TEST_F(Flips, withoutDamageTheNewestIsTaken) {
  EXPECT_EQ(resumed(), 10);
  EXPECT_FALSE(verify_complains());
  EXPECT_GT(blocks_of(manifest.shards[0]).count() + blocks_of(manifest.shards[1]).count(), 3);
}

/// Bytes of a file, and what a run does when they are damaged.
struct Region {
  std::string file;
  std::int64_t from = 0, to = 0;
  std::int64_t resumes = 5;  ///< the older step; 10 where the loader does not look
};

TEST_F(Flips, ofOneBitAreNeverSilent) {
  std::vector<Region> regions = {
      {manifest_file_name, 0, static_cast<std::int64_t>(fs::file_size(step_dir / manifest_file_name)), 5},
      {commit_record_name, 0, static_cast<std::int64_t>(fs::file_size(step_dir / commit_record_name)), 10}};
  for (const ShardInfo& shard : manifest.shards) {
    regions.push_back({shard.file, 0, shard.data_offset, 10});
    regions.push_back({shard.file, shard.data_offset, shard.payload_offset, 5});
    regions.push_back({shard.file, shard.payload_offset, shard.bytes, 5});
  }
  const long flips = env::get_integer("HOLDFAST_FLIPS").value_or(440);
  std::mt19937_64 random(20);
  for (long i = 0; i < flips; ++i) {
    const Region& region = regions[as_size(i) % regions.size()];
    const auto bits = static_cast<std::uint64_t>(8 * (region.to - region.from));
    const std::uint64_t bit = static_cast<std::uint64_t>(8 * region.from) + random() % bits;
    flip_bit(step_dir / region.file, bit);
    ASSERT_EQ(resumed(), region.resumes) << region.file << " bit " << bit;
    ASSERT_TRUE(verify_complains()) << region.file << " bit " << bit;
    flip_bit(step_dir / region.file, bit);
  }
  EXPECT_EQ(resumed(), 10) << "all damage was undone";
}

TEST_F(Flips, aFileThatEndsAtAnyPageIsNoticed) {
  std::vector<std::string> files = {manifest_file_name};
  for (const ShardInfo& shard : manifest.shards) files.push_back(shard.file);
  for (const std::string& file : files) {
    const std::string bytes = read_file(step_dir / file);
    for (std::size_t size = 0; size < bytes.size(); size += 4096)
      for (const std::size_t cut : {size, std::min(size + 1, bytes.size() - 1)}) {
        fs::resize_file(step_dir / file, cut);
        ASSERT_EQ(resumed(), 5) << file << " " << cut;
        if (cut == size) {
          ASSERT_TRUE(verify_complains()) << file << " " << cut;
        }
        // The same size with zeros in place of what was not written, as a power loss may leave it.
        fs::resize_file(step_dir / file, bytes.size());
        ASSERT_NE(resumed(), -1) << file << " " << cut;
        write_file(step_dir / file, bytes);
      }
    write_file(step_dir / file, bytes + '\0');
    ASSERT_EQ(resumed(), 5) << file;
    ASSERT_TRUE(verify_complains()) << file;
    write_file(step_dir / file, bytes);
  }
  EXPECT_EQ(resumed(), 10);
}

/// Does `damage` to each shard in turn, and puts things right again.
template <class Damage>
void to_each_shard(const fs::path& step_dir, const Manifest& manifest, Damage damage) {
  const fs::path aside = step_dir.string() + ".aside";
  fs::copy(step_dir, aside, fs::copy_options::recursive);
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    damage(i, step_dir / manifest.shards[i].file);
    fs::remove_all(step_dir);
    fs::copy(aside, step_dir, fs::copy_options::recursive);
  }
  fs::remove_all(aside);
}

TEST_F(Flips, missingDoubledSwappedAndStaleShardsAreNoticed) {
  const auto noticed = [&](const char* what, std::int64_t expected = 5) {
    EXPECT_EQ(resumed(), expected) << what;
    EXPECT_TRUE(verify_complains()) << what;
  };
  to_each_shard(step_dir, manifest, [&](std::size_t i, const fs::path& shard) {
    const fs::path next = step_dir / manifest.shards[(i + 1) % manifest.shards.size()].file;
    const std::string bytes = read_file(shard), other = read_file(next);
    fs::remove(shard);
    noticed("missing", waits);
    fs::create_directory(shard);
    noticed("a folder");
    fs::remove(shard);
    fs::create_symlink("/dev/zero", shard);
    noticed("a device");
    fs::remove(shard);
    write_file(shard, other);
    noticed("doubled");
    write_file(next, bytes);
    noticed("swapped");
    write_file(next, other);
    fs::copy_file(older_dir / shard.filename(), shard, fs::copy_options::overwrite_existing);
    noticed("stale");
    const std::int64_t head = manifest.shards[i].payload_offset;
    std::string mixed = read_file(shard);
    mixed.replace(0, as_size(head), bytes, 0, as_size(head));
    write_file(shard, mixed);
    noticed("old data under the new head");
    write_file(shard, bytes);
    EXPECT_EQ(resumed(), 10);
  });
}

TEST_F(Flips, aManifestOfAnotherStepIsNoticed) {
  fs::copy_file(older_dir / manifest_file_name, step_dir / manifest_file_name,
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(resumed(), 5);
  EXPECT_TRUE(verify_complains());
}

TEST_F(Flips, whatIsDamagedIsAllThatIsLost) {
  // All pieces of one shard, and no other: salvage() says which.
  const ShardInfo& shard = manifest.shards[1];
  const std::vector<StoredPiece> pieces = pieces_of(manifest, 1);
  ASSERT_FALSE(pieces.empty());
  flip_bit(step_dir / shard.file, static_cast<std::uint64_t>(8 * shard.payload_offset + 5));
  Whole into(tensors, 0);
  std::vector<PieceSpan> all;
  for (const auto& spans : all_spans(tensors, layout)) all.insert(all.end(), spans.begin(), spans.end());
  const State state = into.view(all);
  const Salvaged salvaged = salvage(step_dir, manifest, state);
  EXPECT_THAT(salvaged.problems, ::testing::ElementsAre(::testing::HasSubstr(shard.file + ": block 0 of ")));
  const Blocks blocks = blocks_of(shard);
  State whole{tensors, {}};
  for (std::size_t p = 0; p < all.size(); ++p) {
    const auto stored = std::find_if(pieces.begin(), pieces.end(),
                                     [&](const StoredPiece& piece) { return piece.span == all[p]; });
    const bool hit = stored != pieces.end() && blocks.at(stored->offset) == 0;
    EXPECT_EQ(salvaged.whole[p], !hit) << p;
    if (!hit) whole.pieces.push_back(state.pieces[p]);
  }
  EXPECT_LT(whole.pieces.size(), all.size());
  for (const PieceView& piece : whole.pieces) {
    const std::int64_t each = bytes_of(tensors[piece.tensor].type);
    const auto& truth = newer.values[piece.tensor];
    EXPECT_EQ(0, std::memcmp(piece.data, truth.data() + piece.first * each, piece.count * each));
  }
  // What is missing may come back: nothing follows from it.
  fs::remove(step_dir / manifest.shards[0].file);
  EXPECT_THROW(salvage(step_dir, manifest, state), Unreadable);
}

}  // namespace
}  // namespace holdfast::checkpoint
