// Fine-tuning by low-rank adapters: the base does not change and is in no checkpoint, the adapters have the
// bits of one rank whatever the world, and a killed run goes on to the bits that it would have had.
#include <gmock/gmock.h>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Adapters : public TrainingFixture {
 protected:
  static Sets adapted(Sets more = {}) {
    more.insert(more.begin(),
                {"lora.rank=4", "lora.alpha=8", "lora.dropout=0.1", "optim.lr=2e-2",
                 "lora.targets=[\"q_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\"]"});
    return more;
  }
};

TEST_F(Adapters, DigestAndLossesAreTheSameInEveryWorldAndStrategy) {
  for (const std::string type : {"fp32", "bf16"}) {
    const Sets types = {"precision.parameters=" + type, "precision.reduce=" + type};
    const auto with = [&](Sets more) {
      return more.insert(more.end(), types.begin(), types.end()), adapted(more);
    };
    const std::string name = "one-" + type;
    const Finished alone = train(1, name, with({}));
    ASSERT_EQ(alone.status, 0) << alone.err;
    EXPECT_THAT(alone.err, HasSubstr("adapters"));
    EXPECT_LT(losses(name).back(), losses(name).front() - 0.01) << "it should learn something";
    int run = 0;
    for (const auto& [world, sets] : std::vector<std::pair<int, Sets>>{
             {2, {"shard.strategy=full_shard", "train.activation_checkpointing=full"}},
             {2, {"shard.strategy=no_shard", "train.activation_checkpointing=selective"}},
             {4, {"shard.strategy=hfsdp", "shard.group=2", "train.activation_checkpointing=attention"}},
             {4, {"shard.strategy=hybrid_shard", "shard.group=2"}},
             {4, {"shard.strategy=shard_grad_op"}}}) {
      const std::string dir = name + std::to_string(run++);
      const Finished done = train(world, dir, with(sets));
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(name)) << dir;
      EXPECT_EQ(losses(dir), losses(name)) << dir;
    }
  }
  EXPECT_NE(digest("one-fp32"), digest("one-bf16"));
}

/// A base in 8 or 4 bits: other bits than with the whole one, near it, and the same in every world.
TEST_F(Adapters, OnAQuantizedBaseAreTheSameInEveryWorld) {
  ASSERT_EQ(train(1, "whole", adapted()).status, 0);
  for (const auto& [base, tolerance] : {std::pair<std::string, double>{"int8", 2e-3}, {"nf4", 4e-2}}) {
    const Sets sets = {"lora.base=" + base};
    const auto with = [&](Sets more) {
      return more.insert(more.end(), sets.begin(), sets.end()), adapted(more);
    };
    const Finished alone = train(1, base, with({}));
    ASSERT_EQ(alone.status, 0) << alone.err;
    EXPECT_NE(digest(base), digest("whole"));
    for (std::size_t i = 0; i < losses(base).size(); ++i)
      EXPECT_NEAR(losses(base)[i], losses("whole")[i], tolerance) << base << " step " << i + 1;
    int run = 0;
    for (const auto& [world, more] : std::vector<std::pair<int, Sets>>{
             {2, {"shard.strategy=full_shard", "shard.keep_gathered=0"}},
             {4, {"shard.strategy=hfsdp", "shard.group=2", "train.activation_checkpointing=full"}},
             {2, {"shard.strategy=no_shard"}}}) {
      const std::string dir = base + std::to_string(run++);
      const Finished done = train(world, dir, with(more));
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(base)) << dir;
    }
  }
}

TEST_F(Adapters, AreAllThatCheckpointsHold) {
  ASSERT_EQ(train(1, "whole").status, 0);
  ASSERT_EQ(train(1, "adapters", adapted()).status, 0);
  const auto bytes = [&](const std::string& dir) {
    std::uintmax_t sum = 0;
    for (const auto& file : std::filesystem::directory_iterator(checkpoint(dir, 10))) sum += file.file_size();
    return sum;
  };
  EXPECT_LT(bytes("adapters"), bytes("whole") / 2);
  const std::string manifest = files::read_text(checkpoint("adapters", 10) / "manifest.json");
  EXPECT_THAT(manifest, AllOf(HasSubstr("model.layers.1.self_attn.q_proj.lora_A.weight"),
                              ::testing::Not(HasSubstr("embed_tokens"))));
}

TEST_F(Adapters, AnInterruptedRunGoesOnInAnotherWorldOnTheSameBaseAlone) {
  const Sets constant = {"optim.schedule=constant"};
  ASSERT_EQ(train(1, "whole", adapted(constant)).status, 0);
  ASSERT_EQ(train(2, "cut", adapted({"optim.schedule=constant", "train.steps=5"})).status, 0);
  // Another seed is another base here.
  const Finished other = train(1, "cut", adapted({"optim.schedule=constant", "train.seed=2"}));
  EXPECT_EQ(other.status, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr(" base "));
  const Finished full = train(1, "cut", constant);
  EXPECT_EQ(full.status, 2) << full.err;
  const Finished done =
      train(4, "cut", adapted({"optim.schedule=constant", "shard.strategy=hfsdp", "shard.group=2"}));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(digest("cut"), digest("whole"));
}

TEST_F(Adapters, SitBesideWeightsFromFiles) {
  ASSERT_EQ(train(2, "base", {"shard.strategy=full_shard", "train.steps=3"}).status, 0);
  const auto on_base = [&](Sets more) {
    return more.push_back("model.weights=" + path("base")), adapted(more);
  };
  const Finished alone = train(1, "one", on_base({}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  ASSERT_EQ(train(1, "random", adapted()).status, 0);
  EXPECT_LT(losses("one").front(), losses("random").front() - 0.01) << "the base has learned something";
  for (const Sets& sets : {Sets{"shard.strategy=hfsdp", "shard.group=2"}, Sets{"lora.base=int8"}}) {
    const std::string dir = sets.front();
    const Finished done = train(4, dir, on_base(sets));
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(digest(dir) == digest("one"), sets.size() == 2) << dir;
  }
  // The run goes on with its adapters, and reads the base again; it does not go on without it.
  const Finished longer = train(2, "one", on_base({"train.steps=12", "shard.strategy=full_shard"}));
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("training resumes from the checkpoint of step 10"));
  const Finished other = train(1, "one", adapted({"train.steps=14"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr(" base "));
}

/// Adapters of one run are what another begins with, in any layout; of another kind or base they are refused.
TEST_F(Adapters, BeginWithThoseOfAnotherRun) {
  ASSERT_EQ(train(1, "first", adapted({"optim.schedule=constant"})).status, 0);
  const auto from_first = [&](Sets more) {
    return more.insert(more.begin(), "lora.weights=" + path("first")), adapted(more);
  };
  const Finished alone = train(1, "one", from_first({}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("the initial adapters come from "));
  EXPECT_LT(losses("one").front(), losses("first").front() - 0.01) << "they have learned something";
  const Finished many = train(4, "many", from_first({"shard.strategy=hfsdp", "shard.group=2"}));
  ASSERT_EQ(many.status, 0) << many.err;
  EXPECT_EQ(digest("many"), digest("one"));
  for (const auto& [set, words] : std::vector<std::pair<std::string, std::string>>{
           {"train.seed=2", "belong to another base"},  // without files another seed is another base
           {"lora.rank=2", "there rank 4, alpha 8 on q_proj, v_proj"},
           {"lora.alpha=16", "here rank 4, alpha 16"},
           {"lora.weights=" + path("nowhere"), "there are no adapters at"},
           {"run.resume=" + checkpoint("first", 10).string(), "run.resume and lora.weights"}}) {
    const Finished done = train(2, "refused", from_first({set}));
    EXPECT_EQ(done.status, 2) << set << done.err;
    EXPECT_THAT(done.err, HasSubstr(words)) << set;
  }
}

TEST_F(Adapters, SettingsThatMakeNoSenseAreRefused) {
  for (const auto& [set, words] :
       std::vector<std::pair<std::string, std::string>>{{"lora.targets=[\"q_porj\"]", "Did you mean q_proj?"},
                                                        {"lora.targets=[]", "lora.targets is empty"},
                                                        {"lora.targets=[\"q_proj\", \"q_proj\"]", "twice"},
                                                        {"lora.dropout=1", "below 1"},
                                                        {"lora.alpha=0", "above 0"}}) {
    const Finished done = train(1, "run", {"lora.rank=4", set});
    EXPECT_EQ(done.status, 2) << set;
    EXPECT_THAT(done.err, HasSubstr(words)) << set;
  }
}

}  // namespace
}  // namespace holdfast::train
