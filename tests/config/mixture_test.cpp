#include "src/config/mixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace holdfast::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const Data& data) {
  try {
    mixture_of(data);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "accepted";
}

Data mixture(std::vector<std::string> parts) {
  Data data;
  data.mixture = std::move(parts);
  return data;
}

TEST(Mixture, IsOneFileOrSeveralWithWeights) {
  EXPECT_TRUE(mixture_of({}).empty());
  Data one;
  one.tokens = "a b.bin";
  EXPECT_THAT(mixture_of(one), ElementsAre(MixturePart{"a b.bin", 1}));
  EXPECT_THAT(mixture_of(mixture({"web.bin 0.75", "my code.bin 1e-1"})),
              ElementsAre(MixturePart{"web.bin", 0.75}, MixturePart{"my code.bin", 0.1}));
  for (const MixturePart& part : {MixturePart{"x y", 0.1}, MixturePart{"z", 1e-9}})
    EXPECT_THAT(mixture_of(mixture({text_of(part)})), ElementsAre(part));
}

TEST(Mixture, RefusesWhatIsNone) {
  for (const char* part :
       {"", "web.bin", "web.bin 0", "web.bin -1", "web.bin nan", "web.bin 0.5x", " 1", "web.bin "})
    EXPECT_THAT(refusal(mixture({part})), HasSubstr("is not a part of a mixture")) << part;
  Data both = mixture({"web.bin 1"});
  both.tokens = "web.bin";
  EXPECT_THAT(refusal(both), HasSubstr("are both set"));
  EXPECT_THAT(refusal(mixture(std::vector<std::string>(257, "a 1"))), HasSubstr("257 parts"));
}

TEST(Mixture, PartsAreNamedByTheirFilesWhereThatTellsThemApart) {
  EXPECT_THAT(
      names_of_parts(mixture_of(mixture({"/d/web.bin 1", "a/code.bin 1", "b/code.bin 2", "b/code.bin 1"}))),
      ElementsAre("web", "a/code.bin", "b/code.bin", "b/code.bin (2)"));
}

}  // namespace
}  // namespace holdfast::config
