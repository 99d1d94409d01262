#include "src/tools/infer/text_stream.hpp"

#include <gmock/gmock.h>

#include "src/base/utf8.hpp"

namespace holdfast::infer {
namespace {

class Stream : public ::testing::Test {
 protected:
  std::unique_ptr<text::Tokenizer> tokenizer =
      text::open_tokenizer(HOLDFAST_SOURCE_DIR "/tests/tools/text/golden/llama3");
};

TEST_F(Stream, AddsUpToTheText) {
  const std::string said = "The root \xE6\x95\xB0\xE5\xAD\x97 \xF0\x9F\x90\x9A holds.";
  std::vector<text::Token> tokens;
  tokenizer->encode(said, tokens);
  TextStream stream(*tokenizer);
  std::string sum;
  for (const text::Token token : tokens) {
    const std::string part = stream.add(token);
    EXPECT_TRUE(utf8::valid(part)) << "no half characters";
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
