#include "src/tools/infer/generate.hpp"

#include <gmock/gmock.h>

#include "tests/tools/infer/model.hpp"

namespace holdfast::infer {
namespace {

using namespace holdfast::testing;

class Generate : public ::testing::Test {
 protected:
  std::vector<Answer> write(int batch, const Settings& settings, const Listener& listener = {},
                            std::int64_t positions = 64) {
    Decoder decoder(model.parameters, *model.kernels, batch, positions);
    return generate(decoder, model.shape.vocabulary, prompts, settings, listener);
  }
  static std::vector<Tokens> tokens_of(const std::vector<Answer>& answers) {
    std::vector<Tokens> out;
    for (const Answer& answer : answers) out.push_back(answer.tokens);
    return out;
  }

  Model model{micro()};
  std::vector<Tokens> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 1, 2}, {9, 9}, {0, 3, 0, 3}};
};

TEST_F(Generate, WritesTheSameWhateverTheBatch) {
  for (const double temperature : {0.0, 1.0}) {
    Settings settings;
    settings.sampling.temperature = temperature;
    settings.max_tokens = 12;
    settings.ends = {7};
    const auto one = write(1, settings);
    for (const int batch : {2, 3, 8}) EXPECT_EQ(tokens_of(write(batch, settings)), tokens_of(one)) << batch;
    for (const Answer& answer : one) {
      EXPECT_EQ(answer.stop == Stop::end, answer.tokens.back() == 7);
      EXPECT_TRUE(answer.stop == Stop::end || answer.tokens.size() == 12);
      EXPECT_EQ(std::ranges::count(answer.tokens, 7), answer.stop == Stop::end ? 1 : 0);
    }
    if (temperature == 0) continue;
    settings.sampling.seed = 2;
    EXPECT_NE(tokens_of(write(1, settings)), tokens_of(one));
    settings.sampling.seed = 1;
    settings.first_number = 1;
    EXPECT_NE(tokens_of(write(1, settings)), tokens_of(one)) << "equal prompts have answers of their own";
  }
}

TEST_F(Generate, EndsWhereNoPositionIsLeft) {
  Settings settings;
  settings.max_tokens = 100;
  const auto answers = write(3, settings, {}, 16);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].stop, Stop::full);
    EXPECT_EQ(answers[i].tokens.size(), 16 - prompts[i].size());
  }
}

TEST_F(Generate, TellsWhileItWritesAndStopsWhenAsked) {
  Settings settings;
  settings.max_tokens = 6;
  std::vector<Tokens> heard(prompts.size());
  std::vector<std::size_t> done;
  Listener listener;
  listener.token = [&](std::size_t number, std::int32_t token) { heard[number].push_back(token); };
  listener.done = [&](std::size_t number, const Answer&) { done.push_back(number); };
  EXPECT_EQ(tokens_of(write(2, settings, listener)), heard);
  EXPECT_THAT(done, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4));

  int asked = 0;
  listener.stopped = [&] { return ++asked > 8; };
  done.clear();
  const auto answers = write(2, settings, listener);
  EXPECT_THAT(done, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4)) << "each ends once";
  EXPECT_EQ(answers.back().stop, Stop::interrupted);
  EXPECT_TRUE(answers.back().tokens.empty());
}

}  // namespace
}  // namespace holdfast::infer
