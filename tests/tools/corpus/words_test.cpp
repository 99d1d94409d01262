#include "src/tools/corpus/words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/corpus/generated.hpp"

namespace holdfast::corpus {
namespace {

std::vector<std::uint64_t> words(std::string_view text, std::size_t at_a_time = 64) {
  std::vector<std::uint64_t> all, some(at_a_time);
  Words source(text);
  for (;;) {
    const std::size_t count = source.next(some);
    all.insert(all.end(), some.begin(), some.begin() + std::ptrdiff_t(count));
    if (count < at_a_time) return all;
  }
}

TEST(Words, AreSplitAtWhiteSpaceOfUnicode) {
  const auto expected = words("one two");
  ASSERT_EQ(expected.size(), 2u);
  for (const char* space : {"\t", "\n", "\r\n", "   ", "\v\f", "\u00a0", "\u0085", "\u1680", "\u2000",
                            "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"})
    EXPECT_EQ(words(std::string(space) + "one" + space + space + "two" + space), expected) << space;
}

TEST(Words, HaveNeitherCaseNorPunctuation) {
  EXPECT_EQ(words("\"Well-known,\" (SHE) said: don't!"), words("wellknown she said dont"));
  EXPECT_EQ(words("ÀÉÎÕÜ ÞØ ŁÓDŹ ŽIŽKA ČESKÝ"), words("àéîõü þø łódź žižka český"));
  EXPECT_EQ(words("ΩΜΕΓΑ ЖУРНАЛ Ёлка ЇЖАК"), words("ωμεγα журнал ёлка їжак"));
  EXPECT_EQ(words("«one» “two”… –three— ¿four?"), words("one two three four"));
  EXPECT_EQ(words("ＡＢＣ，１２"), words("ａｂｃ１２"));
  EXPECT_EQ(words("\ufeffo\u00adn\u200de"), words("one"));
  EXPECT_EQ(words("... --- !!"), words(""));
  EXPECT_NE(words("a1"), words("a2"));
  EXPECT_NE(words("é"), words("e"));
  EXPECT_EQ(words("a.b").size(), 1u);
}

TEST(Words, AreCharactersWhereNobodyWritesSpaces) {
  EXPECT_EQ(words("我们，今天。").size(), 4u);
  EXPECT_EQ(words("我们，今天。"), words("我 们 今 天"));
  EXPECT_EQ(words("x我y"), words("x 我 y"));
  EXPECT_EQ(words("きのうカナ々").size(), 6u);
  EXPECT_EQ(words("สวัส").size(), 4u);
  EXPECT_EQ(words("안녕 세계").size(), 2u);             // Korean is written with spaces
  EXPECT_EQ(words("\U00020000\U0002a6df").size(), 2u);  // Han beyond the first plane
  EXPECT_EQ(words("😀😀").size(), 1u);
}

TEST(Words, DoNotDependOnHowManyAreAskedFor) {
  Dice dice(1);
  std::string text;
  for (int i = 0; i < 300; ++i) text += some_word(dice) + (i % 7 == 0 ? "我们" : i % 5 == 0 ? ", " : " ");
  const auto expected = words(text, 10000);
  ASSERT_GT(expected.size(), 300u);
  for (const std::size_t at_a_time : {1, 2, 3, 17, 64}) EXPECT_EQ(words(text, at_a_time), expected);
}

TEST(Words, OfBytesThatAreNoTextEndAtTheEnd) {
  Dice dice(2);
  for (int round = 0; round < 2000; ++round) {
    // On the heap and of its exact size, so that the sanitizers see a byte too far.
    std::vector<char> bytes(dice.below(12));
    for (char& byte : bytes) byte = static_cast<char>(dice.next() | (dice.below(4) != 0 ? 0x80 : 0));
    const std::string_view text(bytes.data(), bytes.size());
    EXPECT_LE(words(text).size(), text.size());
    EXPECT_EQ(words(text), words(text, 1));
  }
}

}  // namespace
}  // namespace holdfast::corpus
