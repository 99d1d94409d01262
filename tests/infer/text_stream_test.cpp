#include "src/infer/text_stream.hpp"

#include <gmock/gmock.h>

namespace holdfast::infer {
namespace {

std::string whole(std::string bytes) { return take_whole_characters(bytes); }
std::string left(std::string bytes) {
  take_whole_characters(bytes);
  return bytes;
}

TEST(TextStream, GivesWholeCharacters) {
  EXPECT_EQ(whole("abc"), "abc");
  EXPECT_EQ(whole("\xC3\xBC x"), "\xC3\xBC x");
  for (const char* begun : {"\xC3", "\xE6\x95", "\xF0\x9F\x90", "\xF0"}) {
    EXPECT_EQ(whole(std::string("a") + begun), "a");
    EXPECT_EQ(left(std::string("a") + begun), begun);
  }
}

TEST(TextStream, ReplacesWhatIsNone) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(whole("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(whole("\x80"), r);
  EXPECT_EQ(whole("\xC3z"), r + "z");
  EXPECT_EQ(whole("\xF0\x9F\x90z"), r + "z") << "one for what belonged together";
  EXPECT_EQ(whole("\xC0\xAF"), r + r) << "overlong";
  EXPECT_EQ(whole("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(whole("\xF5"), r);
}

class Stream : public ::testing::Test {
 protected:
  std::unique_ptr<text::Tokenizer> tokenizer =
      text::open_tokenizer(HOLDFAST_SOURCE_DIR "/tests/text/golden/llama3");
};

TEST_F(Stream, AddsUpToTheText) {
  const std::string said = "The root \xE6\x95\xB0\xE5\xAD\x97 \xF0\x9F\x90\x9A holds.";
  std::vector<text::Token> tokens;
  tokenizer->encode(said, tokens);
  TextStream stream(*tokenizer);
  std::string sum;
  for (const text::Token token : tokens) {
    const std::string part = stream.add(token);
    EXPECT_EQ(left(part), "") << "no half characters";
    sum += part;
  }
  EXPECT_EQ(sum + stream.finish(), said);
  tokens.resize(tokens.size() - 1);
  tokens.push_back(*tokenizer->document_end());
  tokens.push_back(tokenizer->vocabulary());  // of a padded model
  EXPECT_EQ(text_of(*tokenizer, tokens), tokenizer->decode(tokens = {tokens.begin(), tokens.end() - 1}));
}

TEST_F(Stream, EndsWithAReplacementWhereACharacterIsBegun) {
  std::vector<text::Token> tokens;
  tokenizer->encode("\xF0\x9F\x90\x9A", tokens);
  ASSERT_GT(tokens.size(), 1u) << "the test wants a character of several tokens";
  tokens.pop_back();
  EXPECT_EQ(text_of(*tokenizer, tokens), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace holdfast::infer
