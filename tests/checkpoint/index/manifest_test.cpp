// The manifest's text, and every lie that it may not tell.
#include "checkpoint/index/manifest.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "checkpoint/index/hash.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(Checksums, areTheStandardOnes) {
  EXPECT_EQ(xxh3_128(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_128("123456", "789"), xxh3_128("123456789"));
}

Manifest good() {
  Manifest m;
  m.generation = {2, 5};
  m.point = {100, 4096, 32, "calm", "even"};
  m.facts = some_facts(2);
  m.tensors = {{"model/a", 10, 10}, {"optim/exp_avg/a", 1, 7}};
  m.digests = {0x0123456789abcdef, 7};
  m.state_digest = state_digest(m.tensors, m.digests);
  m.shards.resize(2);
  m.layout = {2, 1, {{1, 60, 60}, {1, 8, 8}}};
  m.shards[0] = {"shard-00000.h5", 12288, 4096, 8192, 1, {}, xxh3_128("0"), {}};
  m.shards[1] = {"shard-00001.h5", 12288, 4096, 8192, 3, {}, xxh3_128("1"), {}};
  return m;
}

/// Gives altered text a digest that fits, as a liar would.
std::string signed_again(std::string text) {
  const std::size_t at = text.find("digest\":\"") + 9;
  return text.replace(at, 32, xxh3_128(text.substr(0, at), text.substr(at + 32)));
}

std::string complaint(const std::string& text) {
  try {
    parse_manifest(text);
    return "accepted";
  } catch (const Damaged& e) {
    return e.what();
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

TEST(Manifest, goesThereAndBack) {
  const Manifest m = good();
  const std::string text = to_text(m);
  const Manifest again = parse_manifest(text);
  EXPECT_EQ(to_text(again), text);
  EXPECT_EQ(again.point, m.point);
  EXPECT_EQ(again.facts, m.facts);
  EXPECT_EQ(again.tensors, m.tensors);
  EXPECT_EQ(again.digests, m.digests);
  EXPECT_EQ(again.layout, m.layout);
  EXPECT_EQ(again.shards[1].file, "shard-00001.h5");
  ASSERT_EQ(pieces_of(again, 0).size(), 2u);
  EXPECT_EQ(pieces_of(again, 0)[1].span, (PieceSpan{1, 0, 7}));
  EXPECT_EQ(pieces_of(again, 0)[1].offset, 8192 + 240);
  EXPECT_EQ(pieces_of(again, 1).at(0).span, (PieceSpan{0, 60, 40}));
  EXPECT_EQ(again.shards[1].payload_offset, 8192);
  EXPECT_EQ(total_bytes(again), 2 * 12288);
}

TEST(Manifest, textThatIsNotUtf8DoesNotStopASave) {
  Manifest m = good();
  m.facts.model_toml = "\xff\xfe";
  EXPECT_NO_THROW(parse_manifest(to_text(m)));
}

TEST(Manifest, refusesLies) {
  struct Lie {
    const char* expected;
    std::function<void(Manifest&)> tell;
  };
  const auto cut = [](std::size_t i, auto change) { return [=](Manifest& m) { change(m.layout.cuts[i]); }; };
  constexpr const char* nowhere = "leaves elements that are stored nowhere";
  const Lie lies[] = {
      {nowhere, cut(0, [](Cut& c) { c.stride = 49; })},
      {nowhere, cut(0, [](Cut& c) { c.part = 59; })},
      {nowhere, [](Manifest& m) { m.layout.members = 1; }},
      {"cut 0 of the layout has a stride of 0", cut(0, [](Cut& c) { c.stride = 0; })},
      {"and parts of 0", cut(0, [](Cut& c) { c.part = 0; })},
      {"has a stride of 9223372036854775807", cut(0, [](Cut& c) { c.stride = INT64_MAX; })},
      {"and parts of 9223372036854775807", cut(0, [](Cut& c) { c.part = INT64_MAX; })},
      {"cut 1 of the layout takes 2 tensors of 1", cut(1, [](Cut& c) { c.tensors = 2; })},
      {"cut 1 of the layout takes 0 tensors of 1", cut(1, [](Cut& c) { c.tensors = 0; })},
      {"cut 1 of the layout takes 1 tensors of 0", cut(0, [](Cut& c) { c.tensors = 2; })},
      {"tensor optim/exp_avg/a is stored nowhere", [](Manifest& m) { m.layout.cuts.pop_back(); }},
      {"tensor model/a is stored nowhere", [](Manifest& m) { m.layout.cuts.clear(); }},
      {"there are 0 members", [](Manifest& m) { m.layout.members = 0; }},
      {"there are 2 members and 2147483647 replicas", [](Manifest& m) { m.layout.replicas = INT32_MAX; }},
      {"there are 2 shards of 3 writers", [](Manifest& m) { m.layout.members = 3; }},
      {"there are 1 shards of 2 writers", [](Manifest& m) { m.shards.pop_back(); }},
      {"shard-00000.h5 cannot have 16384 bytes: its pieces have 268",
       [](Manifest& m) { m.shards[0].bytes = 16384; }},
      {"there are no shards", [](Manifest& m) { m.shards.clear(); }},
      {"the payload cannot start at 0", [](auto& m) { m.shards[0].payload_offset = 0; }},
      {"the payload cannot start at 4096", [](auto& m) { m.shards[0].payload_offset = 4096; }},
      {"the payload cannot start at 8193", [](auto& m) { m.shards[0].payload_offset = 8193; }},
      {"the payload cannot start at 12288",
       [](auto& m) { m.shards[0].payload_offset = 12288; }},  // a page too much
      {"the payload cannot start at 8192",
       [](auto& m) { m.shards[0].bytes = 8192 + 993 * block_bytes; }},  // the table needs a second page
      {"cannot have 12288 bytes", [](auto& m) { m.shards[0].payload_offset = 16384; }},
      {"the data cannot start at 0", [](auto& m) { m.shards[0].data_offset = 0; }},
      {"the data cannot start at 4097", [](auto& m) { m.shards[0].data_offset = 4097; }},
      {"cannot have 12289 bytes", [](auto& m) { m.shards[0].bytes = 12289; }},
      {"cannot have 9223372036854775807 bytes", [](auto& m) { m.shards[0].bytes = INT64_MAX; }},
      {"tensor model/a is named twice", [](auto& m) { m.tensors[1].name = "model/a"; }},
      {"tensor model/a cannot be", [](auto& m) { m.tensors[0].rows = m.tensors[0].cols = INT64_MAX; }},
      {"the state digest does not follow", [](auto& m) { m.digests[1] ^= 1; }},
      {"the state digest does not follow", [](auto& m) { m.state_digest ^= 1; }},
  };
  for (const Lie& lie : lies) {
    Manifest m = good();
    lie.tell(m);
    const std::string why = complaint(to_text(m));
    EXPECT_THAT(why, HasSubstr(lie.expected));
  }
  for (const char* name : {"", "/a", "a/", "a//b", "a/../b", ".", "a@0", "a\nb"}) {
    Manifest m = good();
    m.tensors[0].name = name;
    m.state_digest = state_digest(m.tensors, m.digests);
    EXPECT_THAT(complaint(to_text(m)), HasSubstr("is not a tensor name")) << name;
  }
}

TEST(Manifest, refusesWrongFields) {
  struct Change {
    const char *from, *to, *expected;
  };
  const Change changes[] = {
      {"\"step\":100", "\"step\":-100", "generation.step is not a non-negative integer"},
      {"\"step\":100", "\"step\":100.0", "generation.step is not a non-negative integer"},
      {"\"step\":100", "\"step\":\"100\"", "generation.step is not a non-negative integer"},
      {"\"step\":100", "\"step\":1e2", "generation.step is not a non-negative integer"},
      {"\"step\":100", "\"step\":9223372036854775808", "generation.step is 9223372036854775808, at most"},
      {"\"step\":100", "\"step\":99999999999999999999999", "generation.step is not a non-negative integer"},
      {"\"step\":100", "\"stop\":100", "generation.step is missing"},
      {"\"step\":100", "\"step\":100,\"more\":1", "generation has an unknown field \"more\""},
      {"\"epoch\":2", "\"epoch\":2147483648", "generation.epoch is 2147483648, at most 2147483647"},
      {"{\"tokens\":4096,\"samples\":32,\"detector\":\"calm\",\"scaling\":\"even\"}", "[4096,32]",
       "point is not an object"},
      {"\"tokens\":4096", "\"tokens\":null", "point.tokens is not a non-negative integer"},
      {"\"dtype\":\"f32\"", "\"dtype\":\"f31\"", "tensors[0].dtype is \"f31\""},
      {"0123456789abcdef", "0123456789ABCDEF", "tensors[0].digest is not 16 hex digits"},
      {"0123456789abcdef", "0123456789abcde", "tensors[0].digest is not 16 hex digits"},
      {"\"rows\":10", "\"rows\":[10]", "tensors[0].rows is not a non-negative integer"},
      {"\"metadata_crc32c\":\"00000001\"", "\"metadata_crc32c\":\"1\"",
       "shards[0].metadata_crc32c is not 8 hex digits"},
      {"\"payload_offset\":8192", "\"payload_offset\":\"8192\"",
       "shards[0].payload_offset is not a non-negative integer"},
      {"\"payload_offset\":8192", "\"block_crc32c\":\"00000002\"", "shards[0].payload_offset is missing"},
      {"[1,60,60]", "[1,60]", "layout.cuts[0] is not [tensors, stride, part]"},
      {"[1,60,60]", "[1,-60,60]", "layout.cuts[0][1] is not a non-negative integer"},
      {"[1,60,60]", "{}", "layout.cuts[0] is not [tensors, stride, part]"},
      {"\"members\":2", "\"members\":2147483648", "layout.members is 2147483648, at most 2147483647"},
      {"\"seed\":", "\"seed\":-", "facts.seed is not a non-negative integer"},
      {"\"state_digest\":", "\"state_digest\":7,\"x\":", "the top level has an unknown field \"x\""},
      {"\"layout\":{", "\"layout\":{{", "it is not JSON"},
  };
  for (const Change& change : changes) {
    std::string text = to_text(good());
    const std::size_t at = text.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from;
    text.replace(at, std::string(change.from).size(), change.to);
    EXPECT_THAT(complaint(text), HasSubstr("altered or cut"));
    EXPECT_THAT(complaint(signed_again(text)), HasSubstr(change.expected)) << change.to;
  }
}

/// Up to version 4 every piece was named, with its place.
TEST(Manifest, refusesLiesAboutPiecesOfOlderVersions) {
  const std::string text =
      read_file(fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden/version-4/manifest.json");
  EXPECT_EQ(complaint(text), "accepted");
  constexpr const char *in_0 = "[3,0,28,8428]", *in_1 = "[1,3,2,8304]";
  struct Change {
    const char *from, *to, *expected;
  };
  const Change changes[] = {
      {in_1, "[1,4,1,8304]", "elements 3 to 3 of model/model.norm.weight are stored nowhere"},
      {in_1, "[1,3,1,8304]", "elements from 4 of model/model.norm.weight are stored nowhere"},
      {in_1, "[1,2,2,8304]", "element 2 of model/model.norm.weight is stored twice"},
      {in_1, "[1,3,3,8304]", "has a piece outside model/model.norm.weight"},
      {in_1, "[1,3,0,8304]", "has a piece outside model/model.norm.weight"},
      {in_1, "[1,9223372036854775807,9223372036854775807,8304]", "has a piece outside"},
      {in_1, "[4,3,2,8304]", "has a piece of tensor 4, which is not listed"},
      {in_1, "[1,3,2,8300]", "two pieces share bytes at 8300"},
      {in_1, "[1,3,2,8188]", "lies outside the data"},  // over the head
      {in_1, "[1,3,2,0]", "lies outside the data"},
      {in_1, "[1,3,2,8306]", "lies outside the data"},  // not on a multiple of 4
      {in_1, "[1,3,2,12284]", "lies outside the data"},
      {in_1, "[1,3,2,9223372036854775804]", "lies outside the data"},
      {in_0, "[3,0,28,8428],[3,0,28,8428]", "two pieces share bytes"},
      {in_0, "[3,0,28]", "shards[0].pieces[3] is not [tensor, first, count, offset]"},
      {in_0, "[3,0,28,-8428]", "shards[0].pieces[3][3] is not a non-negative integer"},
      {in_0, "{}", "shards[0].pieces[3] is not [tensor, first, count, offset]"},
      {"\"file\":\"shard-00001.h5\"", "\"file\":\"../../etc/passwd\"", "must be in shard-00001.h5"},
      {"\"file\":\"shard-00001.h5\"", "\"file\":\"shard-00000.h5\"", "must be in shard-00001.h5"},
      {"\"file\":\"index.h5\"", "\"file\":\"/etc/passwd\"", "the index must be in index.h5"},
  };
  for (const Change& change : changes) {
    std::string changed = text;
    const std::size_t at = changed.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from;
    changed.replace(at, std::string(change.from).size(), change.to);
    EXPECT_THAT(complaint(signed_again(changed)), HasSubstr(change.expected)) << change.to;
  }
}

/// Up to version 3 the block tables were in the manifest, and had to fit there.
TEST(Manifest, refusesLiesOfOlderVersions) {
  const std::string text =
      read_file(fs::path(HOLDFAST_SOURCE_DIR) / "tests/checkpoint/golden/version-3/manifest.json");
  EXPECT_EQ(complaint(text), "accepted");
  const Manifest old = parse_manifest(text);
  ASSERT_EQ(old.shards[0].block_crc32c.size(), 1u);
  char table[9];
  std::snprintf(table, sizeof table, "%08x", old.shards[0].block_crc32c[0]);
  const std::string field = std::string("\"block_crc32c\":\"") + table + "\"";
  const std::pair<std::string, const char*> changes[] = {
      {"\"block_crc32c\":\"\"", "1 blocks and 0 block checksums"},
      {std::string("\"block_crc32c\":\"") + table + "00000005\"", "1 blocks and 2 block checksums"},
      {"\"block_crc32c\":\"00000000\"", "the root does not follow"},
      {"\"block_crc32c\":\"000000000\"", "shards[0].block_crc32c is not a list of 8 hex digits"},
      {"\"block_crc32c\":\"0000000g\"", "shards[0].block_crc32c is not a list of 8 hex digits"},
      {"\"payload_offset\":8192", "shards[0].block_crc32c is missing"},
  };
  for (const auto& [to, expected] : changes) {
    std::string changed = text;
    ASSERT_NE(changed.find(field), std::string::npos);
    changed.replace(changed.find(field), field.size(), to);
    EXPECT_THAT(complaint(signed_again(changed)), HasSubstr(expected)) << to;
  }
}

TEST(Manifest, tellsNewerFromDamaged) {
  std::string text = to_text(good());
  text.replace(text.find(":5,"), 3, ":7,");
  EXPECT_THAT(complaint(text), HasSubstr("altered or cut"));  // one flipped bit is not a newer version
  EXPECT_THAT(complaint(signed_again(text)),
              HasSubstr("error: the checkpoint has a newer format (version 7"));
}

TEST(Manifest, refusesTextThatIsNoManifest) {
  const std::string text = to_text(good());
  for (std::size_t size = 0; size < text.size(); size += 7)
    EXPECT_NE(complaint(text.substr(0, size)), "accepted") << size;
  for (const char* other : {"{}", "[]", "{\"schema_version\":2}", "\x89HDF\r\n\x1a\n"})
    EXPECT_THAT(complaint(other), HasSubstr("first line"));
  EXPECT_NE(complaint(text + " "), "accepted");
  EXPECT_THAT(
      complaint(signed_again(text.substr(0, text.find("\"generation\"")) + std::string(100'000, '['))),
      HasSubstr("nested too deeply"));
}

TEST(Manifest, aFolderWithoutOneIsNotACheckpoint) {
  const Folder folder;
  EXPECT_THROW(read_manifest(folder.path()), Unreadable);
  EXPECT_THROW(read_manifest(folder.path() / "nowhere"), Unreadable);
  fs::create_directory(folder.path() / "manifest.json");
  EXPECT_THROW(read_manifest(folder.path()), Damaged);
}

}  // namespace
}  // namespace holdfast::checkpoint
