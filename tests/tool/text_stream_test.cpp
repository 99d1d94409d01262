#include "src/tool/text_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "src/base/error.hpp"

namespace holdfast::tool {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class TextStreamTest : public testing::Test {
 protected:
  TextStreamTest() {
    std::string name = fs::temp_directory_path() / "holdfast-text-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~TextStreamTest() override { fs::remove_all(folder_); }

  fs::path put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  /// Pieces with what stood before them: D(ocument), N(ewline), T(ext).
  static std::vector<std::string> pieces_of(const std::vector<fs::path>& inputs) {
    TextStream stream(documents_of(inputs, {}));
    std::vector<std::string> all;
    for (Piece piece; stream.next(piece);) all.push_back("DNT"[static_cast<int>(piece.before)] + piece.text);
    return all;
  }

  fs::path folder_;
};

TEST_F(TextStreamTest, lines_and_documents) {
  const fs::path a = put("a", "one\n\ntwo\n"), b = put("b", "three");
  EXPECT_THAT(pieces_of({a, b}), ElementsAre("Done", "N", "Ntwo", "N", "Dthree"));
}

TEST_F(TextStreamTest, folder_in_order_of_names_without_hidden_and_empty_files) {
  put("x/b", "2"), put("x/a/z", "1"), put("x/.git/c", "no"), put("x/.d", "no"), put("x/e", "");
  EXPECT_THAT(pieces_of({folder_ / "x"}), ElementsAre("D1", "D2"));
}

TEST_F(TextStreamTest, long_lines_are_cut_and_nothing_is_lost) {
  std::string text;
  for (int i = 0; text.size() < 300'000; ++i) text += i % 7 ? "word " : "w\xC3\xB6rter,";
  text += "\n" + std::string(200'000, 'x') + "\nend";
  for (std::string e; e.size() < 100'001; e += "\xC3\xA9")
    text += "\xC3\xA9";  // no space: cut between characters
  TextStream stream(documents_of({put("long", text)}, {}));
  std::string joined;
  std::uint64_t offset = 0;
  for (Piece piece; stream.next(piece);) {
    EXPECT_LE(piece.text.size(), TextStream::most_bytes);
    EXPECT_EQ(piece.offset, offset + (piece.before == Before::newline ? 1 : 0));
    offset = piece.offset + piece.text.size();
    joined += (piece.before == Before::newline ? "\n" : "") + piece.text;
  }
  EXPECT_TRUE(joined == text);
  EXPECT_EQ(stream.replaced(), 0u);
}

TEST_F(TextStreamTest, malformed_utf8_becomes_replacement_characters) {
  const std::string fffd = "\xEF\xBF\xBD";
  struct Row {
    std::string text, repaired;
    std::uint64_t count;
  };
  const std::vector<Row> rows = {
      {"plain \xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80", "plain \xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80", 0},
      {"\xE9t\xE9", fffd + "t" + fffd, 2},                        // Latin-1
      {"\xC0\xAF", fffd + fffd, 2},                               // overlong
      {"a\xE6\xBC", "a" + fffd, 1},                               // cut character: one subpart
      {"\xED\xA0\x80", fffd + fffd + fffd, 3},                    // surrogate
      {"\xF4\x90\x80\x80z", fffd + fffd + fffd + fffd + "z", 4},  // beyond U+10FFFF
      {"\xF0\x9F\x98x\xFF", fffd + "x" + fffd, 2},
  };
  for (const Row& row : rows) {
    std::string text = row.text;
    EXPECT_EQ(repair_utf8(text), row.count) << row.text;
    EXPECT_EQ(text, row.repaired);
  }
  TextStream stream(documents_of({put("latin1", "caf\xE9\nna\xEFve")}, {}));
  for (Piece piece; stream.next(piece);) continue;
  EXPECT_EQ(stream.replaced(), 2u);
}

TEST_F(TextStreamTest, refusals) {
  const auto refusal = [](const std::vector<fs::path>& inputs,
                          const std::vector<fs::path>& excluded) -> std::string {
    try {
      documents_of(inputs, excluded);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return error.what();
    }
    return "accepted";
  };
  const fs::path text = put("x/text", "hello"), empty = put("empty", "");
  EXPECT_THAT(refusal({folder_ / "none"}, {}), HasSubstr("no such file"));
  EXPECT_THAT(refusal({empty}, {}), HasSubstr("every input is empty"));
  EXPECT_THAT(refusal({"/dev/null"}, {}), HasSubstr("neither a regular file nor a folder"));
  EXPECT_THAT(refusal({text}, {text}), HasSubstr("also an output"));
  EXPECT_THAT(refusal({folder_ / "x"}, {text}), HasSubstr("every input is empty"));
}

}  // namespace
}  // namespace holdfast::tool
