#include "src/corpus/utf8.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace holdfast::corpus {
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
    EXPECT_EQ(repair_utf8(text), row.count) << row.text;
    EXPECT_EQ(text, row.repaired);
  }
}

}  // namespace
}  // namespace holdfast::corpus
