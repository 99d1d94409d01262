// What a pattern cuts, against what Oniguruma's manual says of the same expression; and what is refused.
#include "src/tools/text/pattern.hpp"

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t enough = 1'000'000;

/// Matches one behind the other; what does not match is left out.
std::vector<std::string> matches(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> found;
  std::uint64_t steps = enough;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = pattern.match(text, at, steps);
    if (end == Pattern::none) {
      at += utf8::character_bytes(text[at]);
    } else {
      found.emplace_back(text.substr(at, end - at));
      at = end;
    }
  }
  return found;
}
std::vector<std::string> matches(std::string_view expression, std::string_view text) {
  return matches(Pattern(expression), text);
}

TEST(Pattern, TheFirstBranchThatFitsCounts) {
  EXPECT_THAT(matches("ab|abc|c", "abcabc"), ElementsAre("ab", "c", "ab", "c"));
  EXPECT_THAT(matches("(?:ab|a)bc|b", "abbcabc"), ElementsAre("abbc", "abc"));
}

TEST(Pattern, RepetitionsGiveBackWhatFollowsNeeds) {
  EXPECT_THAT(matches(R"(\s*[\r\n]+|\s+)", "  \n \n  x "), ElementsAre("  \n \n", "  ", " "));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\s+)", "   x  "), ElementsAre("  ", " ", "  "));
  EXPECT_THAT(matches(R"(a{2,3}b)", "aaaab ab aab"), ElementsAre("aaab", "aab"));
  EXPECT_THAT(matches(R"(\p{N}{1,3})", "1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(matches(R"(x{2}|x{1,})", "xxxxx"), ElementsAre("xx", "xx", "x"));
}

TEST(Pattern, PossessiveFormsGiveNothingBack) {
  EXPECT_THAT(matches("a*+ab|b", "aaab"), ElementsAre("b"));
  EXPECT_THAT(matches("a?+ab|b", "ab aab"), ElementsAre("b", "aab"));
  EXPECT_THAT(matches("a++b", "aaab"), ElementsAre("aaab"));
}

TEST(Pattern, GroupsMayBeAbsent) {
  EXPECT_THAT(matches(R"(\p{L}+(?i:'s|'ll)?)", "it's IT'LL we'd"), ElementsAre("it's", "IT'LL", "we", "d"));
  EXPECT_THAT(matches("a(b(c)?)?d", "ad abd abcd acd"), ElementsAre("ad", "abd", "abcd"));
}

TEST(Pattern, LooksAhead) { EXPECT_THAT(matches("a(?=b)|b(?!c)", "abacbcb"), ElementsAre("a", "b", "b")); }

TEST(Pattern, CaseIsIgnoredAsUnicodeFoldsIt) {
  EXPECT_THAT(matches("(?i:'s|[k])|t", "'S'\xC5\xBF\xE2\x84\xAAkKTt"),
              ElementsAre("'S", "'\xC5\xBF", "\xE2\x84\xAA", "k", "K", "t"));
  EXPECT_THAT(matches("(?i:[^a]b)", "abABcB"), ElementsAre("cB"));
}

TEST(Pattern, SetsAndProperties) {
  EXPECT_THAT(matches(R"([^\s\p{L}\p{N}]+)",
                      "a+-\xC3\xA9 \xE2\x82\xAC\xE2\x80\xA6"
                      "9"),
              ElementsAre("+-", "\xE2\x82\xAC\xE2\x80\xA6"));
  EXPECT_THAT(matches(R"([\p{Lu}\p{Mn}a-c\-\]]+)",
                      "\xC3\x89\xCC\x81"
                      "abd-]C"),
              ElementsAre("\xC3\x89\xCC\x81"
                          "ab",
                          "-]C"));
  EXPECT_THAT(matches(R"([\S]+)", "ab\xE3\x80\x80\xE1\xA0\x8E c"), ElementsAre("ab", "\xE1\xA0\x8E", "c"));
  EXPECT_THAT(matches(R"(\P{L}\x{4e00}|\p{Han}\d.)",
                      "1\xE4\xB8\x80"
                      "\xE4\xB8\x80"
                      "2x"),
              ElementsAre("1\xE4\xB8\x80",
                          "\xE4\xB8\x80"
                          "2x"));
  EXPECT_THAT(matches("[\xE4\xB8\x80-\xE9\xBE\xA5]+", "x\xE4\xB8\xAD\xE6\x96\x87y"),
              ElementsAre("\xE4\xB8\xAD\xE6\x96\x87"));
  EXPECT_THAT(matches(".", "a\nb"), ElementsAre("a", "b"));
}

TEST(Pattern, LiteralTextIsTakenAsItIs) {
  EXPECT_THAT(matches(Pattern::literal("(a+\xC3\xA9"), "x(a+\xC3\xA9(a"), ElementsAre("(a+\xC3\xA9"));
  EXPECT_THROW(Pattern::literal(""), Error);
}

TEST(Pattern, WhatIsNotUnderstoodIsRefusedByName) {
  const std::pair<const char*, const char*> refused[] = {
      {"a**", "lazy"},
      {"a+?", "lazy"},
      {"a{1,2}+", "repetition"},
      {"(a)+", "repeated group"},
      {"(?=a)?", "group"},
      {"(?<=a)b", "this kind"},
      {"(?<n>a)", "this kind"},
      {"(?>a)", "this kind"},
      {"^a", "'^'"},
      {"a$", "'$'"},
      {R"(\bA)", "backslash"},
      {R"(\w)", "backslash"},
      {R"((a)\1)", "backslash"},
      {R"(\p{Greek})", "Greek"},
      {R"(\p{L)", "property"},
      {R"(\p)", "backslash"},
      {"(a", "')'"},
      {"a)", "')'"},
      {"[a", "early"},
      {"[]a]", "empty"},
      {"[a[b]]", "set in"},
      {"[a&&b]", "set in"},
      {"[z-a]", "range"},
      {R"([\s-a])", "range"},
      {"a{2,1}", "times"},
      {"a{,2}", "times"},
      {"a{9999}", "times"},
      {"a{0}", "times"},
      {"a{x}", "times"},
      {"{", "'{'"},
      {R"(\x{110000})", "wrong"},
      {R"(\x{})", "wrong"},
      {"\\", "early"},
      {"(?i:\xC3\xA9)", "ASCII"},
      {"\xC3", "UTF-8"},
      {"", "empty"},
      {"a*", "empty"},
      {"(a|b?)", "empty"},
      {"(?!a)", "empty"},
      {R"((?i:\p{L}))", "property"},
  };
  for (const auto& [expression, word] : refused) {
    try {
      const Pattern pattern(expression);
      ADD_FAILURE() << "accepted: " << expression;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(word)) << expression;
      EXPECT_EQ(error.exit(), Exit::usage);
    }
  }
  EXPECT_THROW(Pattern(std::string(33, '(') + "a" + std::string(33, ')')), Error);
  EXPECT_THROW(Pattern(std::string(5000, 'a')), Error);
}

TEST(Pattern, StopsWhereItTakesTooLong) {
  std::string ways = "a";  // 5 to the power of 24 through groups that may be empty
  for (int i = 0; i < 24; ++i) ways += "(?:||||)";
  for (const std::string& expression : {std::string("a*a*a*a*a*b"), ways + "b"}) {
    const Pattern pattern(expression);
    std::uint64_t steps = enough;
    EXPECT_THROW(pattern.match(std::string(2000, 'a'), 0, steps), Error) << expression;
  }
}

TEST(Pattern, LiteralIsNotLongerThanAnExpression) {
  EXPECT_NO_THROW(Pattern::literal(std::string(longest_pattern, 'a')));
  EXPECT_THROW(Pattern::literal(std::string(longest_pattern + 1, 'a')), Error);
}

}  // namespace
}  // namespace holdfast::text
