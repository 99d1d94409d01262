// The manifest's text, and every lie that it may not tell.
#include "checkpoint/index/manifest.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "checkpoint/index/hash.hpp"
#include "checkpoint/io/crc32c.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(Checksums, areTheStandardOnes) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
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
  m.shards[0] = {
      "shard-00000.h5", 12288, 4096, 8192, 1, {}, xxh3_128("0"), {{{0, 0, 60}, 8192}, {{1, 0, 7}, 9000}}};
  m.shards[1] = {"shard-00001.h5", 12288, 4096, 8192, 3, {}, xxh3_128("1"), {{{0, 60, 40}, 8192}}};
  m.index = {"index.h5", 800, xxh3_128("index")};
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
  EXPECT_EQ(again.shards[1].pieces[0].span, (PieceSpan{0, 60, 40}));
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
  const auto piece = [](std::size_t shard, std::size_t i, auto change) {
    return [=](Manifest& m) { change(m.shards[shard].pieces[i]); };
  };
  const Lie lies[] = {
      {"elements 60 to 98 of model/a are stored nowhere", piece(1, 0,
                                                                [](auto& p) {
                                                                  p.span = {0, 99, 1};
                                                                })},
      {"elements from 99 of model/a are stored nowhere", piece(1, 0, [](auto& p) { p.span.count = 39; })},
      {"element 59 of model/a is stored twice", piece(1, 0, [](auto& p) { p.span.first = 59; })},
      {"has a piece outside model/a", piece(1, 0, [](auto& p) { p.span.count = 41; })},
      {"has a piece outside model/a", piece(1, 0, [](auto& p) { p.span.count = 0; })},
      {"has a piece outside model/a", piece(1, 0,
                                            [](auto& p) {
                                              p.span = {0, INT64_MAX, INT64_MAX};
                                            })},
      {"has a piece of tensor 2, which is not listed", piece(1, 0, [](auto& p) { p.span.tensor = 2; })},
      {"two pieces share bytes at 8428", piece(0, 1, [](auto& p) { p.offset = 8428; })},
      {"lies outside the data", piece(0, 0, [](auto& p) { p.offset = 8188; })},  // over the head
      {"lies outside the data", piece(0, 0, [](auto& p) { p.offset = 0; })},
      {"lies outside the data", piece(0, 0, [](auto& p) { p.offset = 8194; })},  // not on a multiple of 4
      {"lies outside the data", piece(0, 0, [](auto& p) { p.offset = 12288 - 236; })},
      {"lies outside the data", piece(0, 0, [](auto& p) { p.offset = INT64_MAX - 3; })},
      {"two pieces share bytes", [](auto& m) { m.shards[0].pieces.push_back(m.shards[0].pieces[0]); }},
      {"stored nowhere", [](auto& m) { m.shards.pop_back(); }},
      {"there are no shards", [](auto& m) { m.shards.clear(); }},
      {"must be in shard-00000.h5", [](auto& m) { std::swap(m.shards[0].file, m.shards[1].file); }},
      {"must be in shard-00001.h5", [](auto& m) { m.shards[1].file = "../../etc/passwd"; }},
      {"must be in shard-00001.h5", [](auto& m) { m.shards[1].file = "shard-00000.h5"; }},
      {"the index must be in index.h5", [](auto& m) { m.index.file = "/etc/passwd"; }},
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
      {"[0,0,60,8192]", "[0,0,60]", "shards[0].pieces[0] is not [tensor, first, count, offset]"},
      {"[0,0,60,8192]", "[0,0,60,-8192]", "shards[0].pieces[0][3] is not a non-negative integer"},
      {"[0,0,60,8192]", "{}", "shards[0].pieces[0] is not [tensor, first, count, offset]"},
      {"\"seed\":", "\"seed\":-", "facts.seed is not a non-negative integer"},
      {"\"state_digest\":", "\"state_digest\":7,\"x\":", "the top level has an unknown field \"x\""},
      {"\"index\":{", "\"index\":{{", "it is not JSON"},
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
  text.replace(text.find(":4,"), 3, ":5,");
  EXPECT_THAT(complaint(text), HasSubstr("altered or cut"));  // one flipped bit is not a newer version
  EXPECT_THAT(complaint(signed_again(text)),
              HasSubstr("error: the checkpoint has a newer format (version 5"));
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
      HasSubstr("not JSON"));
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
