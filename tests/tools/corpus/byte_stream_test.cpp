#include "src/tools/corpus/byte_stream.hpp"

#include "tests/tools/corpus/corpus_fixture.hpp"

namespace holdfast::corpus {
namespace {

using testing::HasSubstr;

class ByteStreamTest : public CorpusTest {
 protected:
  static std::string all_of(const std::filesystem::path& path, std::size_t at_a_time = 1000) {
    const auto stream = open_stream(path, compression_of(path));
    std::string text, piece(at_a_time, '\0');
    while (const std::size_t got = stream->read(piece.data(), piece.size())) text.append(piece, 0, got);
    return text;
  }
  static std::string refusal_of(const std::filesystem::path& path) {
    try {
      all_of(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
  static std::string varied(std::size_t bytes) {
    std::string text;
    for (std::uint32_t x = 1; text.size() < bytes; x = x * 1664525u + 1013904223u)
      text += std::to_string(x >> 12) + "\n";
    return text;
  }
};

TEST_F(ByteStreamTest, every_compression_gives_the_same_bytes) {
  const std::string text = varied(1'500'000);
  for (const std::size_t at_a_time : {std::size_t{1} << 20, std::size_t{777}}) {
    EXPECT_TRUE(all_of(put("a", text), at_a_time) == text);
    EXPECT_TRUE(all_of(put("a.gz", gzipped(text)), at_a_time) == text);
    EXPECT_TRUE(all_of(put("a.zst", zstandard(text)), at_a_time) == text);
  }
}

TEST_F(ByteStreamTest, long_runs_of_one_byte) {  // a few bytes of input give megabytes
  const std::string text(5'000'000, 'z');
  EXPECT_TRUE(all_of(put("a.gz", gzipped(text))) == text);
  EXPECT_TRUE(all_of(put("a.zst", zstandard(text))) == text);
}

TEST_F(ByteStreamTest, members_and_frames_follow_each_other) {
  EXPECT_EQ(all_of(put("a.gz", gzipped("one ") + gzipped("") + gzipped("two"))), "one two");
  EXPECT_EQ(all_of(put("a.gz", gzipped("one ") + std::string(512, '\0'))), "one ");
  EXPECT_EQ(all_of(put("a.zst", zstandard("one ") + zstandard("") + zstandard("two"))), "one two");
  EXPECT_EQ(all_of(put("a.gz", "")), "");
  EXPECT_EQ(all_of(put("a.zst", "")), "");
}

TEST_F(ByteStreamTest, cut_and_damaged_files_are_named) {
  const std::string text = varied(200'000);
  for (const std::string& name : {std::string("a.gz"), std::string("a.zst")}) {
    const std::string whole = name == "a.gz" ? gzipped(text) : zstandard(text);
    for (std::size_t bytes = 1; bytes < whole.size(); bytes += 997) {
      EXPECT_THAT(refusal_of(put(name, whole.substr(0, bytes))), HasSubstr("is cut off")) << bytes;
      std::string damaged = whole;
      damaged[bytes] = static_cast<char>(damaged[bytes] ^ 0x55);
      put(name, damaged);
      try {
        all_of(folder_ / "in" /
               name);  // zstd's frames have no checksum here: some damage shows in the text alone
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(name));
      }
    }
    EXPECT_THAT(refusal_of(put(name, whole + "garbage")), HasSubstr("damaged"));
    EXPECT_THAT(refusal_of(put(name, "this is plain text, not what its name says")), HasSubstr("damaged"));
  }
}

}  // namespace
}  // namespace holdfast::corpus
