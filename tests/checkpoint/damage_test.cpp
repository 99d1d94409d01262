// Whatever happens to the bytes: never a silent wrong load, never a crash, and verify finds it.
#include <gmock/gmock.h>

#include <random>

#include "checkpoint/verify.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Damage : ::testing::Test {
  const Folder folder;
  const std::vector<LogicalTensor> tensors = {
      {"model/a", 17, 19}, {"model/norm", 1, 64}, {"optim/exp_avg/a", 17, 19}};
  const WriterLayout layout = even_layout(tensors, 2), reader = even_layout(tensors, 1);
  Whole whole{tensors, 10};
  const fs::path step_dir = save(folder.path(), whole, 10, {1, 1}, layout).path;
  const fs::path one = step_dir / "shard-00001.h5";

  /// "damaged", "right" or "WRONG". Anything but Damaged is thrown on.
  std::string outcome() {
    try {
      return load_all(step_dir, tensors, reader) == whole.values ? "right" : "WRONG";
    } catch (const Damaged&) {
      return "damaged";
    }
  }
  std::string complaint() {
    try {
      load_all(step_dir, tensors, reader);
    } catch (const Damaged& e) {
      return e.what();
    }
    return "";
  }
  std::vector<std::string> problems() { return verify(step_dir).problems; }
};

TEST_F(Damage, noneIsNone) {
  EXPECT_EQ(outcome(), "right");
  EXPECT_THAT(problems(), IsEmpty());
}

/// Flips `count` bits one after the other at random places of `file`, each undone before the next.
template <class Check>
void flip_each(const fs::path& file, std::int64_t from, std::int64_t to, int count, Check check) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from + count));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t bit =
        static_cast<std::uint64_t>(from) * 8 + random() % static_cast<std::uint64_t>((to - from) * 8);
    flip_bit(file, bit);
    check(file.filename().string() + " bit " + std::to_string(bit));
    flip_bit(file, bit);
  }
}

TEST_F(Damage, aFlippedBitInTheManifestIsDamage) {
  flip_each(step_dir / "manifest.json", 0,
            static_cast<std::int64_t>(fs::file_size(step_dir / "manifest.json")), 2000,
            [&](const std::string& where) {
              EXPECT_EQ(outcome(), "damaged") << where;
              EXPECT_FALSE(problems().empty()) << where;
            });
}

TEST_F(Damage, aFlippedBitInTheDataIsDamage) {
  const Manifest m = read_manifest(step_dir);
  for (const ShardInfo& shard : m.shards)
    flip_each(step_dir / shard.file, shard.data_offset, shard.bytes, 1000, [&](const std::string& where) {
      EXPECT_EQ(outcome(), "damaged") << where;
      EXPECT_FALSE(problems().empty()) << where;
    });
}

TEST_F(Damage, aFlippedBitInHdf5MetadataIsFoundByVerifyAndHarmlessForTheLoader) {
  const Manifest m = read_manifest(step_dir);
  for (const ShardInfo& shard : m.shards)
    flip_each(step_dir / shard.file, 0, shard.data_offset, 350, [&](const std::string& where) {
      EXPECT_EQ(outcome(), "right") << where;
      EXPECT_FALSE(problems().empty()) << where;
    });
  flip_each(step_dir / "index.h5", 0, m.index.bytes, 300, [&](const std::string& where) {
    EXPECT_EQ(outcome(), "right") << where;
    EXPECT_FALSE(problems().empty()) << where;
  });
}

TEST_F(Damage, truncatedFilesAreDamage) {
  for (const char* name : {"shard-00000.h5", "manifest.json"}) {
    const fs::path file = step_dir / name;
    const std::string bytes = read_file(file);
    for (std::size_t size = 0; size < bytes.size(); size += 97) {
      write_file(file, bytes.substr(0, size));
      EXPECT_EQ(outcome(), "damaged") << name << " " << size;
    }
    write_file(file, bytes + '\0');
    EXPECT_EQ(outcome(), "damaged") << name << " too long";
    EXPECT_FALSE(problems().empty());
    write_file(file, bytes);
  }
  EXPECT_EQ(outcome(), "right");
}

TEST_F(Damage, aMissingShardIsNamed) {
  fs::remove(one);
  EXPECT_THAT(complaint(), HasSubstr("shard-00001.h5: it is missing"));
  EXPECT_FALSE(problems().empty());
  fs::create_directory(one);
  EXPECT_EQ(outcome(), "damaged");
}

TEST_F(Damage, swappedShardsAreNoticed) {
  const fs::path zero = step_dir / "shard-00000.h5", aside = step_dir / "aside";
  fs::rename(zero, aside), fs::rename(one, zero), fs::rename(aside, one);
  EXPECT_EQ(outcome(), "damaged");
  EXPECT_FALSE(problems().empty());
}

TEST_F(Damage, aShardOfAnotherStepIsNamed) {
  Whole later(tensors, 20);
  const fs::path other = save(folder.path(), later, 20, {1, 1}, layout).path;
  fs::copy_file(other / "shard-00001.h5", one, fs::copy_options::overwrite_existing);
  EXPECT_THAT(complaint(), HasSubstr("shard-00001.h5: it is of step 20, generation 1-1, rank 1 of 2"));
  EXPECT_FALSE(problems().empty());
}

TEST_F(Damage, aShardOfAnotherAttemptIsNamed) {
  const Folder elsewhere;
  const fs::path other = save(elsewhere.path(), whole, 10, {1, 2}, layout).path;
  fs::copy_file(other / "shard-00001.h5", one, fs::copy_options::overwrite_existing);
  EXPECT_THAT(complaint(), HasSubstr("it is of step 10, generation 1-2, rank 1 of 2"));
}

TEST_F(Damage, zeroedPagesAfterAPowerLossAreNoticed) {
  const std::string bytes = read_file(one);
  for (std::size_t at = 0; at < bytes.size(); at += 512) {
    std::string holed = bytes;
    std::fill_n(holed.begin() + static_cast<std::ptrdiff_t>(at),
                std::min<std::size_t>(512, bytes.size() - at), '\0');
    write_file(one, holed);
    EXPECT_NE(outcome(), "WRONG") << at;
    EXPECT_EQ(problems().empty(), holed == bytes) << at;
  }
}

TEST_F(Damage, aWriterThatLiedAboutTheDigestIsFoundByVerify) {
  std::vector<std::uint64_t> digests = whole.digests();
  digests[0] ^= 1;
  Commit commit(folder.path(), 30, {1, 1}, 2);
  for (int rank = 0; rank < 2; ++rank) {
    ShardWriter writer(folder.path(), rank, {1, 1},
                       whole.view(layout.of_rank[static_cast<std::size_t>(rank)]), layout, some_facts(2));
    commit.add(rank, true, writer.write({30, 0, 0}, digests));
  }
  EXPECT_THAT(verify(commit.commit(3).path).problems,
              ::testing::ElementsAre(HasSubstr("tensor model/a has digest ")));
}

TEST_F(Damage, hdf5FilesOfOthersAreFoundByVerify) {
  // A manifest that fits its files byte by byte, but names pieces that HDF5 does not have there.
  Manifest m = read_manifest(step_dir);
  std::swap(m.shards[0].pieces[0].span,
            m.shards[0].pieces[2].span);  // equal sizes, so everything else still fits
  write_file(step_dir / "manifest.json", to_text(m));
  EXPECT_THAT(problems(), ::testing::Contains(HasSubstr("the manifest says")));
}

}  // namespace
}  // namespace holdfast::checkpoint
