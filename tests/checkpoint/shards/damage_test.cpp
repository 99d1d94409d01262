// Whatever happens to the bytes: never a silent wrong load, never a crash, and verify finds it and says
// where. flips_test.cpp does the same by the thousand.
#include <gmock/gmock.h>

#include <random>

#include "checkpoint/index/hash.hpp"
#include "checkpoint/verify/verify.hpp"
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

/// It proves nothing: the file system may be away.
TEST_F(Damage, aMissingShardIsNamedAndIsNoDamage) {
  fs::remove(one);
  try {
    outcome();
    ADD_FAILURE() << "read what is not there";
  } catch (const Unreadable& e) {
    EXPECT_THAT(e.what(), HasSubstr("shard-00001.h5: it is missing"));
  }
  EXPECT_FALSE(problems().empty());
  EXPECT_TRUE(verify(step_dir).unreadable);
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

TEST_F(Damage, aDigestThatDoesNotFollowFromTheDataIsFoundByVerify) {
  Manifest m = read_manifest(step_dir);
  m.digests[0] ^= 1;
  m.state_digest = state_digest(m.tensors, m.digests);
  write_file(step_dir / "manifest.json", to_text(m));
  EXPECT_THAT(problems(), ::testing::ElementsAre(HasSubstr("tensor model/a has digest "),
                                                 HasSubstr("commit.json: it is not that of this manifest")));
}

TEST_F(Damage, verifyNamesEveryShardThatIsDamaged) {
  const Manifest m = read_manifest(step_dir);
  flip_bit(step_dir / "shard-00000.h5", static_cast<std::uint64_t>(8 * m.shards[0].payload_offset));
  flip_bit(one, static_cast<std::uint64_t>(8 * m.shards[1].data_offset + 8 * record_bytes));
  EXPECT_THAT(problems(), ::testing::UnorderedElementsAre(
                              HasSubstr("shard-00000.h5: block 0 of 1 does not match its checksum"),
                              HasSubstr("shard-00001.h5: its block table is not the one that was written")));
}

/// Numbers that fit the text's own digest, but no file: refused before anything of that size is asked for.
TEST_F(Damage, aManifestThatLiesIsDamage) {
  const Manifest good = read_manifest(step_dir);
  constexpr std::int64_t huge = std::int64_t{1} << 50;
  const auto lies = [&](const char* what, auto change) {
    Manifest m = good;
    change(m);
    write_file(step_dir / "manifest.json", to_text(m));
    EXPECT_EQ(outcome(), "damaged") << what;
    EXPECT_FALSE(problems().empty()) << what;
  };
  lies("a larger shard", [&](Manifest& m) { m.shards[1].bytes += page_bytes; });
  lies("a huge shard", [&](Manifest& m) { m.shards[1].bytes = huge; });
  lies("a huge head", [&](Manifest& m) { m.shards[1].payload_offset = m.shards[1].bytes = huge; });
  lies("huge metadata", [&](Manifest& m) { m.shards[1].data_offset = huge; });
  lies("a head of another size", [&](Manifest& m) { m.shards[1].payload_offset += page_bytes; });
  lies("no payload", [&](Manifest& m) { m.shards[1].payload_offset = 0; });
  lies("another root", [&](Manifest& m) { m.shards[1].root[0] = m.shards[1].root[0] == '0' ? '1' : '0'; });
  lies("other cuts", [&](Manifest& m) { m.layout.cuts[0].stride += 1; });
  lies("a hole", [&](Manifest& m) { m.layout.cuts[0].part -= 1; });
  lies("a tensor that nobody writes", [&](Manifest& m) { m.layout.cuts.pop_back(); });
  lies("a huge stride", [&](Manifest& m) { m.layout.cuts[0].stride = huge; });
  lies("many members", [&](Manifest& m) { m.layout.members = 1 << 30; });
  lies("no replicas", [&](Manifest& m) { m.layout.replicas = 0; });
  lies("a huge tensor", [&](Manifest& m) { m.tensors[0].rows = huge; });
  lies("a tensor that does not exist", [&](Manifest& m) { m.layout.cuts[2].tensors = 2; });
  lies("a shard too many", [&](Manifest& m) { m.shards.push_back(m.shards[1]); });
  lies("no shards", [&](Manifest& m) { m.shards.clear(); });
}

TEST_F(Damage, aFolderWithoutAManifestCannotBeReadNow) {
  const Folder empty;
  for (const fs::path& path : {empty.path(), empty.path() / "nothing", one}) {
    EXPECT_THROW(load_all(path, tensors, reader), Unreadable) << path;
    EXPECT_FALSE(verify(path).problems.empty()) << path;
  }
}

TEST_F(Damage, aFolderWithSomethingElseForAManifestIsDamage) {
  const Folder other;
  const auto refused = [&] {
    EXPECT_THROW(load_all(other.path(), tensors, reader), Damaged);
    EXPECT_FALSE(verify(other.path()).problems.empty());
  };
  for (const char* text : {"", "{}", "\x89HDF\r\n\x1a\n", "[[[[[[[[[[[[[[["}) {
    write_file(other.path() / "manifest.json", text);
    refused();
  }
  fs::remove(other.path() / "manifest.json");
  fs::create_directory(other.path() / "manifest.json");
  refused();
}

TEST_F(Damage, aNewerFormatIsNotDamage) {
  std::string text = to_text(read_manifest(step_dir));
  const std::string version = ":" + std::to_string(format_version) + ",";
  text.replace(text.find(version), version.size(), ":99,");
  const std::size_t digits = text.find("\"digest\":\"") + 10;
  text.replace(digits, 32, xxh3_128(text.substr(0, digits), text.substr(digits + 32)));
  write_file(step_dir / "manifest.json", text);
  try {
    load_all(step_dir, tensors, reader);
    FAIL() << "loaded a format of the future";
  } catch (const Damaged& e) {
    FAIL() << "called damaged: " << e.what();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("version 99"));
  }
}

TEST_F(Damage, hdf5FilesOfOthersAreFoundByVerify) {
  // A manifest that fits its files byte by byte, but names tensors that HDF5 has elsewhere.
  Manifest m = read_manifest(step_dir);
  std::swap(m.tensors[0].name, m.tensors[2].name);  // equal sizes, so everything else still fits
  m.state_digest = state_digest(m.tensors, m.digests);
  write_file(step_dir / "manifest.json", to_text(m));
  EXPECT_THAT(problems(), ::testing::Contains(HasSubstr("the manifest says")));
}

}  // namespace
}  // namespace holdfast::checkpoint
