#include "src/base/utf8.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace holdfast::utf8 {
namespace {

TEST(Utf8, malformed_parts_become_replacement_characters) {
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
    EXPECT_EQ(repair(text), row.count) << row.text;
    EXPECT_EQ(text, row.repaired);
  }
}

TEST(Utf8, is_known_when_it_is_well_formed) {
  for (const char* good :
       {"", "a", "abcdefgh\xC3\xA9", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(valid(good));
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "abcdefgh\xC3", "\xE2\x82", "\xE2\x28\xA1", "\xFF"})
    EXPECT_FALSE(valid(bad));
}

std::string whole(std::string bytes) { return take_settled(bytes); }
std::string left(std::string bytes) {
  take_settled(bytes);
  return bytes;
}

TEST(Utf8, whole_characters_are_taken) {
  EXPECT_EQ(whole("abc"), "abc");
  EXPECT_EQ(whole("\xC3\xBC x"), "\xC3\xBC x");
  for (const char* begun : {"\xC3", "\xE6\x95", "\xF0\x9F\x90", "\xF0"}) {
    EXPECT_EQ(whole(std::string("a") + begun), "a");
    EXPECT_EQ(left(std::string("a") + begun), begun);
  }
}

TEST(Utf8, what_cannot_become_a_character_is_replaced) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(whole("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(whole("\x80"), r);
  EXPECT_EQ(whole("\xC3z"), r + "z");
  EXPECT_EQ(whole("\xF0\x9F\x90z"), r + "z") << "one for what belonged together";
  EXPECT_EQ(whole("\xC0\xAF"), r + r) << "overlong";
  EXPECT_EQ(whole("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(whole("\xF5"), r);
}

}  // namespace
}  // namespace holdfast::utf8
