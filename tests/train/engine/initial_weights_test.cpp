// What a run begins with when model.weights names it: the same bits as an import and run.resume, in any
// layout, and an error before the first step when it is not this model's.
#include <gmock/gmock.h>

#include "checkpoint/exchange/checkpoint_tensors.hpp"
#include "checkpoint/exchange/export.hpp"
#include "checkpoint/exchange/import.hpp"
#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/safetensors_index.hpp"
#include "src/config/load.hpp"
#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using checkpoint::Manifest;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class InitialWeights : public TrainingFixture {
 protected:
  /// What the end of a short run holds, as a sharded bf16 folder "hf" and a whole file "fp32.safetensors".
  void SetUp() override {
    TrainingFixture::SetUp();
    ASSERT_EQ(train(1, "before", {"train.steps=3"}).status, 0);
    const auto step_dir = checkpoint("before", 3);
    const Manifest manifest = checkpoint::read_manifest(step_dir);
    const auto wide = checkpoint::types_of_model(manifest, checkpoint::Element::f32);
    const checkpoint::NamedFile whole[] = {
        {checkpoint::plan_safetensors(manifest.tensors, wide), path("fp32.safetensors")}};
    checkpoint::CheckpointTensors source(step_dir, manifest);
    checkpoint::write_whole_files(source, whole);
    std::filesystem::create_directory(path("hf"));
    checkpoint::safetensors::WeightMap map;
    std::vector<checkpoint::NamedFile> files;
    const auto types = checkpoint::types_of_model(manifest, checkpoint::Element::bf16);
    for (auto& file : checkpoint::plan_model_files(manifest.tensors, types, 20000)) {
      for (const auto& name : file.tensors) map[name] = file.name;
      files.push_back({std::move(file.file), path("hf/" + file.name)});
    }
    ASSERT_GT(files.size(), 2u);
    checkpoint::CheckpointTensors again(step_dir, manifest);
    checkpoint::write_whole_files(again, files);
    write("hf/model.safetensors.index.json", checkpoint::safetensors::index_text(map, 0));
  }
  Sets from(const std::string& weights, const std::string& more = "train.lanes=8") const {
    return {"train.steps=2", "model.weights=" + path(weights), more};
  }
  /// The checkpoint that an import of `source` makes.
  std::string imported_from(const std::string& source) const {
    checkpoint::ImportOrder order;
    const auto shape = config::load_model(path("model.toml"));
    order.source = path(source);
    order.checkpoints = path("imported");
    for (const auto& spec : config::tensors_of(shape))
      order.model.push_back({spec.name, spec.rows, spec.cols});
    order.facts.model_toml = config::to_toml(shape);
    order.facts.numerics = checkpoint::imported_numerics;
    return checkpoint::import_safetensors(order).path.string();
  }
  static std::string state_at_start(const std::string& log) {
    const auto at = log.find("step 0, state ");
    return at == std::string::npos ? "none in " + log : log.substr(at + 14, 16);
  }
};

TEST_F(InitialWeights, AreThoseOfAnImportInAnyLayout) {
  const Finished imported = train(1, "imported-run", {"train.steps=2", "run.resume=" + imported_from("hf")});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const Finished one = train(1, "one", from("hf"));
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(state_at_start(one.err), state_at_start(imported.err));
  EXPECT_EQ(digest("one"), digest("imported-run"));
  const std::vector<std::pair<int, std::string>> layouts = {
      {2, "shard.strategy=full_shard"}, {4, "shard.group=2"}, {2, "shard.strategy=hfsdp"}};
  for (const auto& [world, strategy] : layouts) {
    const Finished many = train(world, "many" + strategy, from("hf", strategy));
    ASSERT_EQ(many.status, 0) << many.err;
    EXPECT_EQ(state_at_start(many.err), state_at_start(one.err)) << strategy;
    EXPECT_EQ(digest("many" + strategy), digest("one")) << strategy;
  }
}

TEST_F(InitialWeights, OfACheckpointOrARunAreThoseOfItsFile) {
  const Finished file = train(1, "file", from("fp32.safetensors"));
  ASSERT_EQ(file.status, 0) << file.err;
  for (const std::string source : {"before", "before/checkpoints/step-00000003"}) {
    const Finished run = train(2, "from-" + std::to_string(source.size()), from(source));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr("the initial weights come from checkpoint "));
    EXPECT_EQ(state_at_start(run.err), state_at_start(file.err));
    EXPECT_EQ(digest("from-" + std::to_string(source.size())), digest("file"));
  }
  // A run that has a checkpoint does not look at them any more.
  std::filesystem::remove(path("fp32.safetensors"));
  const Finished on = train(1, "file", {"train.steps=3", "model.weights=" + path("fp32.safetensors")});
  EXPECT_EQ(on.status, 0) << on.err;
}

TEST_F(InitialWeights, OfAnotherModelAreRefusedOnce) {
  const auto says = [&](int world, const Sets& sets) {
    const Finished done = train(world, "refused", sets);
    EXPECT_EQ(done.status, 2) << done.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused/metrics.jsonl"));
    return done.err;
  };
  EXPECT_THAT(says(1, from("nowhere")), HasSubstr("there are no weights at"));
  write("wide.toml",
        "[model]\nname = \"wide\"\nvocabulary = 128\nwidth = 64\nlayers = 2\nheads = 4\nkv_heads = "
        "2\nffn = 88\nmax_sequence = 64\n");
  const std::string error = says(2, from("hf", "model.file=" + path("wide.toml")));
  EXPECT_THAT(error, HasSubstr("model.embed_tokens.weight has shape [128, 32], the model has [128, 64]"));
  EXPECT_EQ(error.find("has shape"), error.rfind("has shape")) << "said once";
  write("deep.toml",
        "[model]\nname = \"deep\"\nvocabulary = 128\nwidth = 32\nlayers = 3\nheads = 4\nkv_heads = "
        "2\nffn = 88\nmax_sequence = 64\n");
  EXPECT_THAT(says(1, from("hf", "model.file=" + path("deep.toml"))),
              HasSubstr("it has no tensor model.layers.2."));
  const std::string whole = files::read_text(path("fp32.safetensors"));
  write("cut.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(says(1, from("cut.safetensors")), HasSubstr("not a usable safetensors file"));
}

}  // namespace
}  // namespace holdfast::train
