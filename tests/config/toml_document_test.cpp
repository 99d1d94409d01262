#include "src/config/toml_document.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::config {
namespace {

TEST(TomlDocument, KeepsLinesAndOrder) {
  const auto d = parse_document("[b]\nx = 1\n\n[a]\ny = [\"p\",\n \"q\"]\n[[u]]\nn = 1\n[[u]]\nn = 2\n", "f");
  ASSERT_EQ(d.entries.size(), 8u);
  EXPECT_EQ(d.entries[0].table, "b");
  EXPECT_EQ(d.entries[1].line, 2);
  EXPECT_EQ(d.entries[3].line, 5);
  EXPECT_EQ(std::get<std::vector<std::string>>(d.entries[3].value), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(d.entries[7].element, 1);
  EXPECT_EQ(d.where(d.entries[7]), "f:10");
}

TEST(TomlDocument, SpellingComesBack) {
  const double numbers[] = {
      0.0, -0.0, 1.0, 3e-4, 1e300, 5e-324, 0.1, 1.0 / 3.0, 1e22, -2.5, std::numeric_limits<double>::max()};
  for (const double v : numbers) {
    const auto back = parse_value(spell(v));
    ASSERT_TRUE(back && std::holds_alternative<double>(*back)) << spell(v);
    EXPECT_EQ(std::get<double>(*back), v);
    EXPECT_EQ(std::signbit(std::get<double>(*back)), std::signbit(v));
  }
  for (const std::int64_t v :
       {std::int64_t{0}, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(parse_value(spell(v)), Value(v));
  EXPECT_EQ(parse_value(spell(true)), Value(true));
  EXPECT_EQ(parse_value(spell(std::vector<std::string>{})), Value(std::vector<std::string>{}));
}

std::string encode(std::uint32_t c) {
  const auto byte = [](std::uint32_t v) { return static_cast<char>(v); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 63))};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 63)), byte(0x80 | (c & 63))};
  return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 63)), byte(0x80 | (c >> 6 & 63)),
          byte(0x80 | (c & 63))};
}

TEST(TomlDocument, EveryCharacterComesBack) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int k = 0; k < 20; ++k) {
      std::uint32_t c = i < 128 ? static_cast<std::uint32_t>(i) : random() % (k % 2 ? 0x110000 : 0x300);
      if (c >= 0xd800 && c <= 0xdfff) c = 0xd7ff;
      text += encode(c);
    }
    ASSERT_TRUE(utf8::valid(text));
    ASSERT_EQ(parse_value(spell(text)), Value(text)) << spell(text);
  }
}

TEST(TomlDocument, KnowsUtf8) {
  for (const char* bad : {"\xff", "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "a\xc3", "\xe2\x98"})
    EXPECT_FALSE(utf8::valid(bad)) << bad;
  EXPECT_TRUE(utf8::valid("plain, ü, ☃, 😀"));
  EXPECT_THROW(spell(std::string("\xff")), Error);
}

TEST(TomlDocument, OneValueIsOneValue) {
  EXPECT_FALSE(parse_value("1\nw = 2"));
  EXPECT_FALSE(parse_value("1\n[t]"));
  EXPECT_FALSE(parse_value(""));
  EXPECT_FALSE(parse_value("word"));
  EXPECT_EQ(parse_value("{ a = 1 }"), Value(Unusable{"a table"}));
  EXPECT_EQ(parse_value("[1, 2.5]"), Value(std::vector<double>{1, 2.5}));
  EXPECT_EQ(spell(Value(std::vector<double>{1, 2.5})), "[1.0, 2.5]");
  EXPECT_EQ(parse_value("[[1], [2]]"), Value(Unusable{"a list that is not all strings or all numbers"}));
}

}  // namespace
}  // namespace holdfast::config
