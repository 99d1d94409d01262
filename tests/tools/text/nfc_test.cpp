#include "src/tools/text/nfc.hpp"
#include "src/base/utf8.hpp"

#include <gtest/gtest.h>

#include "src/tools/text/unicode.hpp"

namespace holdfast::text {
namespace {

std::string utf8(std::initializer_list<std::uint32_t> characters) {
  std::string text;
  for (const std::uint32_t c : characters) utf8::append(text, c);
  return text;
}
std::string normalized(const std::string& text) {
  const auto changed = nfc(text);
  return changed ? changed->text : text;
}

TEST(Nfc, ComposesOrdersAndReplaces) {
  EXPECT_EQ(normalized(utf8({'e', 0x301})), utf8({0xE9}));
  EXPECT_EQ(normalized(utf8({'e', 0x302, 0x323})), utf8({0x1EC7}));  // marks in the other order
  EXPECT_EQ(normalized(utf8({0x212B})), utf8({0xC5}));               // a singleton
  EXPECT_EQ(normalized(utf8({0x958})), utf8({0x915, 0x93C}));        // excluded from composition
  EXPECT_EQ(normalized(utf8({0x1112, 0x1161, 0x11AB})), utf8({0xD55C}));
  EXPECT_EQ(normalized(utf8({0x9C7, 0x9BE})), utf8({0x9CB}));
  EXPECT_EQ(normalized(utf8({0x1E9B, 0x323})), utf8({0x1E9B, 0x323}));
  EXPECT_EQ(normalized(utf8({0xFB01, 0x2460})), utf8({0xFB01, 0x2460}));  // compatibility only
  EXPECT_FALSE(nfc("plain caf\xC3\xA9 \xE4\xB8\xAD"));
  EXPECT_FALSE(nfc(""));
}

TEST(Nfc, MarksOfNewerUnicodeStayWhereTheyAre) {
  EXPECT_EQ(normalized(utf8({'a', 0x301, 0x1AC6, 0x323})), utf8({0xE1, 0x1AC6, 0x323}));
  EXPECT_EQ(normalized(utf8({0x11935, 0x11930})), utf8({0x11935, 0x11930}));
}

TEST(Nfc, SaysWhereBytesCameFrom) {
  const std::string text = "ab" + utf8({'e', 0x301}) + "c" + utf8({0x212B}) + "d";
  const auto changed = nfc(text);
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->text, "ab" + utf8({0xE9}) + "c" + utf8({0xC5}) + "d");
  const std::size_t expected[] = {0, 1, 2, 2, 5, 6, 6, 9, 10};
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(changed->original(i), expected[i]) << i;
}

TEST(Nfc, ManyMarksOnALetterTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) utf8::append(text, i % 2 == 0 ? 0x301 : 0x323);
  const std::string changed = normalized(text);
  EXPECT_EQ(utf8::code_point(changed.data()),
            0x1EA1u);  // a with a dot below; acute ones follow the other dots
  EXPECT_EQ(changed.size(), text.size() - 1 - 2 + 3);
  EXPECT_EQ(normalized(changed), changed);
}

TEST(Unicode, KnowsItsCategories) {
  EXPECT_EQ(categories()['A'], Category::Lu);
  EXPECT_EQ(categories()[' '], Category::Zs);
  EXPECT_EQ(categories()[0x31350], Category::Lo);  // of Unicode 15
  EXPECT_EQ(categories()[0x1CCF0], Category::Nd);  // of Unicode 16
  EXPECT_EQ(categories()[0xD800], Category::Cs);
  EXPECT_EQ(categories()[0x10FFFF], Category::Cn);
}

}  // namespace
}  // namespace holdfast::text
