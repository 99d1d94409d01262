#include "src/tools/corpus/text_documents.hpp"

#include "tests/tools/corpus/corpus_fixture.hpp"

namespace holdfast::corpus {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces_of(std::string_view text) {
  Pieces pieces(text);
  std::vector<std::string> all;
  for (std::string_view piece; pieces.next(piece);) all.emplace_back(piece);
  return all;
}

TEST(Pieces, lines) {
  EXPECT_THAT(pieces_of("one\n\ntwo\n"), ElementsAre("one", "", "two", ""));
  EXPECT_THAT(pieces_of("three"), ElementsAre("three"));
}

TEST(Pieces, long_lines_are_cut_and_nothing_is_lost) {
  std::string words, letters;
  for (int i = 0; words.size() < 300'000; ++i) words += i % 7 ? "word " : "w\xC3\xB6rter,";
  while (letters.size() < 100'001) letters += "\xC3\xA9";  // no space: cut between characters
  for (const std::string& text : {words, std::string(200'000, 'x'), letters}) {
    std::string joined;
    for (const std::string& piece : pieces_of(text)) {
      EXPECT_LE(piece.size(), Pieces::max_bytes);
      EXPECT_NE(static_cast<unsigned char>(piece.front()) & 0xC0, 0x80);
      joined += piece;
    }
    EXPECT_TRUE(joined == text);
  }
}

TEST(CutText, at_lines_words_and_characters) {
  const auto cut = [](std::string_view text, std::uint64_t at) {
    const Halves halves = cut_text(text, at);
    return std::string(halves.first) + "|" + std::string(halves.second);
  };
  EXPECT_EQ(cut("one\ntwo\nthree", 0), "|one\ntwo\nthree");
  EXPECT_EQ(cut("one\ntwo\nthree", 1), "one|two\nthree");
  EXPECT_EQ(cut("one\ntwo\nthree", 4), "one|two\nthree") << "a line begins there";
  EXPECT_EQ(cut("one\ntwo\nthree", 5), "one\ntwo|three");
  EXPECT_EQ(cut("one\ntwo\nthree", 99), "one\ntwo\nthree|");
  EXPECT_EQ(cut("one two three", 2), "one| two three");
  EXPECT_EQ(cut("\xC3\xA9\xC3\xA9", 3), "\xC3\xA9|\xC3\xA9");
}

using ReadDocumentTest = CorpusTest;

TEST_F(ReadDocumentTest, all_of_a_file_and_no_more_than_fits) {
  EXPECT_EQ(read_document(put("a", "text\n"), Compression::none), "text\n");
  EXPECT_EQ(read_document(put("a.gz", gzipped("text\n")), Compression::gzip), "text\n");
  const auto bomb = put("b.gz", gzipped(std::string(1 << 20, 'a')));
  EXPECT_EQ(read_document(bomb, Compression::gzip, 1 << 20).size(), 1u << 20);
  EXPECT_THROW(read_document(bomb, Compression::gzip, (1 << 20) - 1), Error);
}

}  // namespace
}  // namespace holdfast::corpus
