// A run ends early when its held-out loss gets no better, and keeps its best checkpoint: at the same step
// with the same bits, however often it was begun again.
#include <gmock/gmock.h>

#include <algorithm>

#include "src/base/digest.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class EarlyEnd : public TrainingFixture {
 protected:
  void SetUp() override {
    TrainingFixture::SetUp();
    write_tokens("held_out.bin", vocabulary, 32 * 7 + 1);
    write_noise("noise.bin", 32 * 9 + 1);
  }
  /// A text of which nothing can be learned: its loss rises while the model learns the other one.
  void write_noise(const std::string& name, int count) const {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < count; ++i)
      tokens.push_back(static_cast<std::int32_t>(mix64(static_cast<std::uint64_t>(i) + 99) % vocabulary));
    data::TokenFileWriter writer(path(name), vocabulary);
    writer.append(tokens);
    writer.finish();
  }
  Sets with(Sets more) const {
    Sets sets = {"data.validation=" + path("noise.bin"),
                 "eval.every=2",
                 "optim.schedule=constant",
                 "train.steps=30",
                 "checkpoint.every=3",
                 "checkpoint.keep=1"};
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
  std::vector<std::pair<int, double>> held_out(const std::string& dir) const {
    std::vector<std::pair<int, double>> out;
    for (const auto& line : metrics(dir))
      if (line.contains("held_out_loss")) out.emplace_back(line["step"], line["held_out_loss"]);
    return out;
  }
  /// As if the attempt had ended after `step`, also by its record.
  void forget_after(const std::string& dir, int step) const {
    for (const std::string& name : files::list(folder_ / dir / "checkpoints"))
      if (std::stoi(name.substr(5)) > step) std::filesystem::remove_all(folder_ / dir / "checkpoints" / name);
    std::filesystem::remove(folder_ / dir / "durable.json");
  }
  std::vector<std::string> checkpoints(const std::string& dir) const {
    return files::list(folder_ / dir / "checkpoints");
  }
};

TEST_F(EarlyEnd, IsAtTheSameStepOnEveryWorldAndAfterEveryRestart) {
  const Sets patient = with({"eval.patience=3", "eval.min_delta=100", "checkpoint.keep=10"});
  const Finished whole = train(1, "whole", patient);
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(result("whole")["final_step"], 8) << "the loss of step 2 was not beaten at steps 4, 6 and 8";
  EXPECT_THAT(whole.err, HasSubstr("the run ends early, at step 8: in 3 evaluations"));
  EXPECT_TRUE(std::filesystem::exists(checkpoint("whole", 8)));
  EXPECT_EQ(metrics("whole").size(), 8u);
  // After step 3 one evaluation is remembered, after step 6 three are.
  for (const int step : {3, 6}) {
    const std::string dir = "run" + std::to_string(step);
    ASSERT_EQ(train(2, dir, patient).status, 0);
    EXPECT_EQ(digest(dir), digest("whole"));
    forget_after(dir, step);
    const Finished done = train(step == 3 ? 4 : 1, dir, patient);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("training resumes from the checkpoint of step " + std::to_string(step)));
    EXPECT_EQ(result(dir)["final_step"], 8);
    EXPECT_EQ(digest(dir), digest("whole"));
    EXPECT_EQ(losses(dir), losses("whole"));
    EXPECT_EQ(held_out(dir), held_out("whole"));
  }
  const Finished again = train(1, "whole", patient);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(metrics("whole").size(), 8u) << "it has ended";
  EXPECT_THAT(files::read_text(checkpoint("whole", 8) / "manifest.json"), HasSubstr("detector"));
  const Finished further =
      train(1, "whole", with({"eval.patience=9", "eval.min_delta=100", "train.steps=12"}));
  ASSERT_EQ(further.status, 0) << further.err;
  EXPECT_EQ(result("whole")["final_step"], 12) << "with more patience it goes on";
}

TEST_F(EarlyEnd, KeepsTheBestCheckpoint) {
  const Sets sets = with({"eval.patience=4", "eval.keep_best=true"});
  const Finished whole = train(2, "whole", sets);
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto losses_held_out = held_out("whole");
  const auto best = *std::ranges::min_element(losses_held_out, {}, [](const auto& l) { return l.second; });
  const int last = result("whole")["final_step"];
  ASSERT_LT(best.first, last) << "else nothing is shown";
  ASSERT_LT(last, 30);
  EXPECT_EQ(result("whole")["best"]["step"], best.first);
  EXPECT_EQ(result("whole")["best"]["held_out_loss"], best.second);
  const std::string kept = checkpoint("whole", best.first).filename().string();
  EXPECT_THAT(checkpoints("whole"),
              ElementsAre(kept, kept + ".best", checkpoint("whole", last).filename().string()));
  // Begun again from the best checkpoint, it ends with the same state and the same best one.
  forget_after("whole", best.first);
  const std::string before = digest("whole");
  const Finished done = train(1, "whole", sets);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(digest("whole"), before);
  EXPECT_THAT(checkpoints("whole"),
              ElementsAre(kept, kept + ".best", checkpoint("whole", last).filename().string()));
}

TEST_F(EarlyEnd, WithoutItNothingIsRemembered) {
  ASSERT_EQ(train(1, "run", with({"train.steps=4"})).status, 0);
  EXPECT_THAT(checkpoints("run"), Not(Contains(HasSubstr(".best"))));
  EXPECT_EQ(result("run")["best"], nullptr);
  const auto manifest = nlohmann::json::parse(files::read_text(checkpoint("run", 4) / "manifest.json"));
  EXPECT_THAT(manifest.dump(), Not(HasSubstr("+")));
}

TEST_F(EarlyEnd, EachHeldOutFileHasItsLoss) {
  const Sets one = with({"train.steps=4"});
  ASSERT_EQ(train(1, "one", one).status, 0);
  const Sets two = with(
      {"train.steps=4", "data.validation=['" + path("noise.bin") + "', '" + path("held_out.bin") + "']"});
  for (const int world : {1, 2}) {
    const std::string dir = "two" + std::to_string(world);
    const Finished done = train(world, dir, two);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(held_out(dir), held_out("one")) << "the first file's loss is the run's";
    EXPECT_EQ(digest(dir), digest("one"));
    const auto line = metrics(dir).back();
    EXPECT_EQ(line["held_out_by_file"]["noise"], line["held_out_loss"]);
    EXPECT_LT(line["held_out_by_file"]["held_out"], line["held_out_loss"]) << "it can be learned";
    EXPECT_THAT(done.err, HasSubstr("of held_out"));
  }
  EXPECT_FALSE(metrics("one").back().contains("held_out_by_file"));
}

}  // namespace
}  // namespace holdfast::train
