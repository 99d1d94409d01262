// What a user gets wrong ends with exit code 2 and one sentence that names it.
#include <gmock/gmock.h>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

class BadInput : public TrainingFixture {
 protected:
  void refuses(int world, const Sets& sets, const std::string& sentence) {
    const Finished done = train(world, "run", sets);
    EXPECT_EQ(done.status, 2) << done.err;
    EXPECT_THAT(done.err, HasSubstr(sentence));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "metrics.jsonl"));
  }
};

TEST_F(BadInput, TokenFiles) {
  write("empty", "");
  write_tokens("other", 1000, 5000);
  write_tokens("short", vocabulary, 20);
  write("cut", files::read_text(path("tokens.bin")).substr(0, 5000));
  refuses(1, {"data.tokens=\"" + path("missing") + "\""}, "missing");
  refuses(1, {"data.tokens=\"" + path("empty") + "\""}, "empty");
  refuses(1, {"data.tokens=\"" + path("cut") + "\""}, "truncated");
  refuses(1, {"data.tokens=\"" + path("short") + "\""}, "too short");
  refuses(1, {"data.tokens=\"" + path("other") + "\""}, "another vocabulary");
  refuses(1, {"data.tokens=\"\""}, "no token file");
  refuses(2, {"data.tokens=\"" + path("missing") + "\""}, "missing");
}

TEST_F(BadInput, TokensOfAnotherTokenizer) {
  const auto write_made_by = [&](const std::string& name, const std::string& tokenizer) {
    data::TokenFileWriter writer(path(name), vocabulary, data::hash_bytes(tokenizer));
    writer.append(learnable_tokens(vocabulary, 5000));
    writer.finish();
  };
  write_made_by("a.bin", "a"), write_made_by("b.bin", "b");
  const std::string both = "data.mixture=[\"" + path("a.bin") + " 1\", \"" + path("b.bin") + " 1\"]";
  refuses(2, {"data.tokens=", both}, "was made by another tokenizer than that of " + path("a.bin"));
  std::filesystem::create_directory(path("weights"));
  write("weights/tokenizer.json", "b");
  refuses(1, {"data.tokens=" + path("a.bin"), "model.weights=" + path("weights")},
          "was made by another tokenizer than that of " + path("weights"));
  // These say nothing of themselves, or are asked for.
  for (const Sets& sets :
       {Sets{"data.tokens=", both, "data.other_tokenizer=true"},
        Sets{"data.mixture=[\"" + path("a.bin") + " 1\", \"" + path("tokens.bin") + " 1\"]",
             "data.tokens="}}) {
    const Finished done = train(1, "good" + std::to_string(sets.size()), sets);
    EXPECT_EQ(done.status, 0) << done.err;
  }
}

TEST_F(BadInput, WorldsThatDoNotFit) {
  refuses(3, {"shard.strategy=full_shard"}, "16 micro-batches");
  refuses(2, {"shard.strategy=no_shard", "train.lanes=1"}, "replicas");
  refuses(3, {"shard.strategy=hybrid_shard", "shard.group=2"}, "group");
}

TEST_F(BadInput, AResumeWithOtherArithmeticUnlessItIsAskedFor) {
  ASSERT_EQ(train(1, "other", {"train.steps=5"}).status, 0);
  const Finished refused = train(1, "other", {"train.lanes=4"});
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err,
              HasSubstr("was \"16 micro-batches in 8 lanes\", now \"16 micro-batches in 4 lanes\""));
  const Finished type = train(1, "other", {"precision.parameters=bf16"});
  EXPECT_EQ(type.status, 2) << type.err;
  EXPECT_THAT(type.err, HasSubstr("parameters bf16"));
  const Finished asked = train(1, "other", {"train.lanes=4", "run.other_numerics=continue"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_THAT(asked.err, HasSubstr("bits differ from those of the run before the checkpoint"));
  const Finished moments = train(1, "other", {"precision.moments=bf16", "run.other_numerics=continue"});
  EXPECT_EQ(moments.status, 2) << moments.err;
  EXPECT_THAT(moments.err, HasSubstr("has another precision"));
}

TEST_F(BadInput, ADirectoryOfASubmittedJob) {
  std::filesystem::create_directories(folder_ / "run");
  write("run/owner.json", "{}");
  refuses(1, {}, "belongs to a submitted job");
  refuses(2, {}, "belongs to a submitted job");
}

TEST_F(BadInput, KeysAndArguments) {
  refuses(1, {"train.stepz=4"}, "Did you mean train.steps?");
  Command c;
  c.argv = {HOLDFAST_TRAIN};
  EXPECT_EQ(run(c, std::chrono::seconds(20)).status, 2);
  c.argv = {HOLDFAST_TRAIN, "--frobnicate"};
  EXPECT_EQ(run(c, std::chrono::seconds(20)).status, 2);
  c.argv = {HOLDFAST_TRAIN, path("job.toml")};
  const Finished homeless = run(c, std::chrono::seconds(20));
  EXPECT_EQ(homeless.status, 2);
  EXPECT_THAT(homeless.err, HasSubstr("no run directory"));
}

}  // namespace
}  // namespace holdfast::train
