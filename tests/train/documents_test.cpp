// Documents inside rows, and mixtures of token files: the bits are those of one rank, whatever the world.
#include <gmock/gmock.h>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using ::testing::HasSubstr;

class Documents : public TrainingFixture {
 protected:
  using Texts = std::vector<std::vector<std::int32_t>>;

  /// Documents of 3 to 29 tokens.
  static Texts texts(int count) {
    const auto all = learnable_tokens(vocabulary, 32 * count);
    Texts out;
    for (int i = 0; i < count; ++i) {
      const auto first = all.begin() + 32 * i;
      out.emplace_back(first, first + 3 + i * 7 % 27);
    }
    return out;
  }
  void write_texts(const std::string& name, const Texts& texts, std::int64_t row = 0) const {
    data::TokenFileWriter writer(path(name), vocabulary, {}, row);
    for (const auto& text : texts) {
      writer.begin_document();
      writer.append(std::span(text).first(1), false);  // like a begin token: nobody learns it
      writer.append(std::span(text).subspan(1));
    }
    writer.finish();
  }
  std::string tokens(const std::string& name) const { return "data.tokens=" + path(name); }
  /// Of each step; null: there is but one source.
  std::vector<nlohmann::json> losses_by_source(const std::string& dir) const {
    std::vector<nlohmann::json> out;
    for (const auto& line : metrics(dir)) out.push_back(line.value("loss_by_source", nlohmann::json()));
    return out;
  }
};

TEST_F(Documents, DigestAndLossesAreTheSameInEveryWorld) {
  write_texts("documents.bin", texts(200));
  write_tokens("more.bin", vocabulary, 3000);
  for (const Sets& data :
       {Sets{tokens("documents.bin")}, Sets{"data.tokens=", "data.mixture=[\"" + path("documents.bin") +
                                                                " 2\", \"" + path("more.bin") + " 1\"]"}}) {
    const std::string name = data.size() == 1 ? "one" : "mixed";
    const auto with = [&](Sets more) { return more.insert(more.begin(), data.begin(), data.end()), more; };
    const Finished alone = train(1, name, data);
    ASSERT_EQ(alone.status, 0) << alone.err;
    int run = 0;
    for (const auto& [world, sets] : std::vector<std::pair<int, Sets>>{
             {2, {"shard.strategy=full_shard", "train.activation_checkpointing=full"}},
             {4, {"shard.strategy=hfsdp", "shard.group=2", "train.activation_checkpointing=attention"}}}) {
      const std::string dir = name + std::to_string(run++);
      const Finished done = train(world, dir, with(sets));
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(digest(dir), digest(name)) << dir;
      EXPECT_EQ(losses(dir), losses(name)) << dir;
      EXPECT_EQ(losses_by_source(dir), losses_by_source(name)) << dir;
    }
    for (const auto& line : metrics(name)) {
      EXPECT_EQ(line.contains("loss_by_source"), name == "mixed");
      if (name != "mixed") continue;
      const double documents = line["loss_by_source"]["documents"], more = line["loss_by_source"]["more"];
      EXPECT_LE(std::min(documents, more), line["loss"]);
      EXPECT_GE(std::max(documents, more), line["loss"]);
      EXPECT_NE(documents, more);
    }
    // A run that stops and goes on reads the samples that it would have read.
    ASSERT_EQ(train(1, name + "-cut", with({"train.steps=5", "optim.schedule=constant"})).status, 0);
    ASSERT_EQ(train(2, name + "-cut", with({"train.steps=10", "optim.schedule=constant"})).status, 0);
    ASSERT_EQ(train(1, name + "-whole", with({"train.steps=10", "optim.schedule=constant"})).status, 0);
    EXPECT_EQ(digest(name + "-cut"), digest(name + "-whole"));
    EXPECT_LT(losses(name).back(), losses(name).front() - 0.2) << "it should learn something";
  }
  EXPECT_NE(digest("one"), digest("mixed"));
}

/// Positions and attention begin anew with each document, so that it does not matter what stands before it.
TEST_F(Documents, ADocumentKnowsNothingOfItsNeighbours) {
  const auto all = learnable_tokens(vocabulary, 64 * 32);
  Texts forth, back;
  for (int row = 0; row < 64; ++row) {
    const auto first = all.begin() + 32 * row;
    const std::vector<std::int32_t> a(first, first + 13), b(first + 13, first + 32);
    forth.push_back(a), forth.push_back(b);
    back.push_back(b), back.push_back(a);
  }
  write_texts("forth.bin", forth, 32);
  write_texts("back.bin", back, 32);
  const auto loss = [&](const std::string& name, const std::string& boundaries) {
    const Finished done =
        train(1, name + boundaries,
              {tokens(name), "data.boundaries=" + boundaries, "train.steps=1", "optim.warmup_steps=0"});
    EXPECT_EQ(done.status, 0) << done.err;
    return losses(name + boundaries).at(0);
  };
  EXPECT_NEAR(loss("forth.bin", "true"), loss("back.bin", "true"), 2e-6);
  EXPECT_GT(std::abs(loss("forth.bin", "false") - loss("back.bin", "false")), 1e-4);
}

TEST_F(Documents, RowsOfAnotherLengthAreRefused) {
  write_texts("rows.bin", Texts(16, std::vector<std::int32_t>(16, 3)), 16);
  const Finished done = train(1, "run", {tokens("rows.bin")});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("its rows have 16 tokens, train.sequence is 32"));
}

}  // namespace
}  // namespace holdfast::train
