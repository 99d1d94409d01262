#include "src/tools/infer/token_ids.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "src/base/error.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::infer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TokenIds, AreThoseOfGenerationBeforeThoseOfTheModel) {
  const test::Scratch dir;
  const auto folder = dir.write("config.json", R"({"bos_token_id": 1, "eos_token_id": 2})").parent_path();
  EXPECT_THAT(token_ids_of(folder).ends, ElementsAre(2));
  EXPECT_THAT(token_ids_of(folder).begins, ElementsAre(1));
  dir.write("generation_config.json", R"({"eos_token_id": [5, 6], "bos_token_id": null})");
  const TokenIds both = token_ids_of(folder);
  EXPECT_THAT(both.ends, ElementsAre(5, 6));
  EXPECT_THAT(both.begins, ElementsAre(1));
  EXPECT_EQ(both.said_by.filename(), "generation_config.json");
  EXPECT_THAT(token_ids_of(folder / "nowhere").ends, IsEmpty());
}

TEST(TokenIds, OfTheTokenizerAreComparedAndStandIn) {
  const auto tokenizer = text::open_tokenizer(HOLDFAST_SOURCE_DIR "/tests/tools/text/golden/llama3");
  const auto end = *tokenizer->document_end();
  EXPECT_THAT(ends_of({}, *tokenizer), ElementsAre(end));
  EXPECT_THAT(ends_of({{}, {3, 4}, "x"}, *tokenizer), ElementsAre(3, 4));
  EXPECT_EQ(disagreement({{}, {3, end}, "x"}, *tokenizer), "");
  EXPECT_THAT(disagreement({{7}, {3}, "x"}, *tokenizer),
              ::testing::AllOf(HasSubstr("begins a text is token 7"), HasSubstr("ends a text is token 3")));
}

TEST(TokenIds, RefuseWhatIsNoToken) {
  for (const char* bad :
       {R"({"eos_token_id": -1})", R"({"eos_token_id": "</s>"})", R"({"eos_token_id": 1.5})",
        R"({"eos_token_id": [[1]]})", R"({"eos_token_id": 99999999999})", "[]", "{", ""}) {
    const test::Scratch dir;
    const auto folder = dir.write("config.json", bad).parent_path();
    EXPECT_THROW(token_ids_of(folder), Error) << bad;
  }
}

}  // namespace
}  // namespace holdfast::infer
