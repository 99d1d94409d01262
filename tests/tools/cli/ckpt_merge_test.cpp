// Adapters go out as peft lays them out, and added to the model that they were trained on.
#include "tests/tools/cli/ckpt_merge_fixture.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/exchange/export.hpp"
#include "src/tools/cli/merged_model.hpp"
#include "src/weights/adapter_files.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::testing::flip_bit;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(CkptMerge, adaptersGoOutAsPeftLaysThemOut) {
  ExportOrder order;
  order.path = path("adapters");
  order.out = path("peft/");
  EXPECT_THAT(run(order), HasSubstr("step 0, adapters of rank 3 as float32, 12 tensors"));
  EXPECT_THAT(files::list(path("peft")), ElementsAre("adapter_config.json", "adapter_model.safetensors"));
  const auto json = nlohmann::json::parse(read_file(path("peft/adapter_config.json")));
  EXPECT_EQ(json["r"], 3);
  EXPECT_EQ(json["lora_alpha"], 4.5);
  EXPECT_EQ(json["base_model_name_or_path"], hf().string());
  const fs::path weights = path("peft/adapter_model.safetensors");
  const safetensors::Source source(weights);
  EXPECT_EQ(source.names().size(), adapters.size());
  for (const auto& [name, values] : adapters)
    EXPECT_EQ(read_tensor(source, "base_model.model." + name), values);
  EXPECT_THAT(safetensors::read_header(weights).metadata,
              UnorderedElementsAre(std::pair("format", "pt"),
                                   std::pair(weights::peft_base_digest, facts.base_digest)));
  // And come back as what they were.
  const weights::AdapterFiles again(path("peft"));
  EXPECT_EQ(again.require(shape), adapted());
  EXPECT_EQ(again.facts().base_digest, facts.base_digest);
}

TEST_F(CkptMerge, theModelIsTheBaseWithTheAdaptersAdded) {
  ExportOrder order = merge(path("adapters"));
  order.dtype = "fp32";
  EXPECT_THAT(run(order), AllOf(HasSubstr("step-00000000 added to " + hf().string()),
                                HasSubstr("21 tensors as float32 in 1 files")));
  const safetensors::Source source(path("out/model.safetensors"));
  double largest = 0, changed = 0;
  for (const config::TensorSpec& spec : config::base_tensors_of(shape)) {
    const auto values = read_tensor(source, spec.name);
    const auto exact = expected(spec);
    ASSERT_EQ(values.size(), exact.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i] - exact[i]));
      changed = std::max<double>(changed, std::abs(values[i] - base.at(spec.name)[i]));
    }
  }
  EXPECT_LT(largest, 1e-6);  // a few roundings of sums below 8
  EXPECT_GT(changed, 1);
  EXPECT_EQ(config::load_hf_config(path("out/config.json")).dtype, "float32");
}

TEST_F(CkptMerge, withoutAskingTheTypeIsThatOfTheBase) {
  ExportOrder order = merge(trained());
  const std::string as_base = merged_file(order);
  order.dtype = "bf16";
  EXPECT_EQ(merged_file(order), as_base);
  order.dtype = "fp32";
  run(order);
  fs::rename(path("out"), path("wide"));
  run(merge(trained()));
  const safetensors::Source wide(path("wide")), narrow(path("out"));
  for (const std::string& name : wide.names()) {
    auto values = read_tensor(wide, name);
    for (float& x : values) x = to_float(to_bf16(x));
    EXPECT_EQ(narrow.tensor(name).dtype, "BF16");
    EXPECT_EQ(read_tensor(narrow, name), values);
  }
  EXPECT_EQ(config::load_hf_config(path("out/config.json")).dtype, "bfloat16");
}

TEST_F(CkptMerge, theSameWhereverAdaptersAndBaseLie) {
  const std::string file = merged_file(merge(trained()));
  ExportOrder peft;
  peft.path = trained();
  peft.out = path("peft");
  run(peft);
  EXPECT_EQ(merged_file(merge(path("peft"))), file);  // the base is the one that the folder names
  import("base", shape, base);
  ExportOrder order = merge(path("peft"), path("base"));
  order.dtype = "bf16";
  EXPECT_EQ(merged_file(order), file);
}

TEST_F(CkptMerge, theSameHoweverTheWorkIsCut) {
  const auto file_of = [&](const checkpoint::WholeFileOptions& options) {
    MergedModel model(trained(), {});
    const checkpoint::NamedFile one[] = {
        {checkpoint::plan_safetensors(model.tensors(), model.types(Element::f32)), path("file")}};
    write_whole_files(model, one, {}, options);
    std::string bytes = read_file(path("file"));
    fs::remove(path("file"));
    return bytes;
  };
  const std::string whole = file_of({8 << 20, 1});
  EXPECT_EQ(file_of({4096, 1}), whole);
  EXPECT_EQ(file_of({4096, 4}), whole);
  EXPECT_EQ(file_of({12288, 3}), whole);
}

TEST_F(CkptMerge, inManyFilesAndInOneForBothFormats) {
  ExportOrder order = merge(trained());
  order.shard_bytes = 8000;
  run(order);
  const safetensors::Source many(path("out"));
  EXPECT_GT(many.files(), 3);
  order.out = path("one");
  order.polyglot = true;
  run(order);
  const safetensors::Source one(path("one"));
  for (const std::string& name : many.names()) {
    auto values = read_tensor(one, name);
    for (float& x : values) x = to_float(to_bf16(x));
    EXPECT_EQ(read_tensor(many, name), values);
  }
}

TEST_F(CkptMerge, theTokenizerComesAlong) {
  const auto kept = [&](const char* name) { return read_file(path("out") / name); };
  write_file(hf() / "tokenizer.json", "of the base");
  write_file(hf() / "generation_config.json", "how to go on");
  run(merge(trained()));
  EXPECT_EQ(kept("tokenizer.json"), "of the base");
  EXPECT_EQ(kept("generation_config.json"), "how to go on");
  const auto ids = config::load_hf_config(path("out/config.json")).ids;
  EXPECT_EQ(ids.bos + " " + ids.eos, "1 [2,3]");
  fs::remove_all(path("out"));

  ExportOrder peft;
  peft.path = trained();
  peft.out = path("peft");
  run(peft);
  write_file(path("peft/tokenizer.model"), "of the adapters");
  write_file(path("peft/chat_template.jinja"), "as they were trained");
  run(merge(path("peft")));
  EXPECT_THAT(files::list(path("out")),
              UnorderedElementsAre("chat_template.jinja", "config.json", "generation_config.json",
                                   "model.safetensors", "tokenizer.model"));
  EXPECT_EQ(config::load_hf_config(path("out/config.json")).ids.bos, "1");
  fs::remove_all(path("out"));

  fs::create_directory(path("mine"));
  write_file(path("mine/tokenizer.json"), "mine");
  ExportOrder order = merge(path("peft"));
  order.tokenizer = path("mine");
  run(order);
  EXPECT_EQ(kept("tokenizer.json"), "mine");
  EXPECT_FALSE(fs::exists(path("out/tokenizer.model")));
  fs::remove_all(path("peft"));
  peft.tokenizer = path("mine");
  peft.dtype = "fp16";
  run(peft);
  EXPECT_EQ(read_file(path("peft/tokenizer.json")), "mine");
  const safetensors::Source halves(path("peft/adapter_model.safetensors"));
  EXPECT_EQ(halves.tensor(halves.names().front()).dtype, "F16");
}

TEST_F(CkptMerge, refusesWhatDoesNotBelongTogether) {
  // Other weights of the same model: only the digest tells, when all has been read.
  base["model.norm.weight"][5] += 1;
  fs::create_directory(path("other"));
  write_tensors(path("other/model.safetensors"), config::base_tensors_of(shape), base, Element::bf16);
  fs::copy(hf() / "config.json", path("other/config.json"));
  EXPECT_THAT(complaint(merge(trained(), path("other"))),
              AllOf(HasSubstr("belong to other weights"), HasSubstr(facts.base_digest)));
  // Another model.
  config::ModelShape wider = shape;
  wider.ffn = 48;
  write_tensors(path("other/model.safetensors"), config::base_tensors_of(wider),
                drawn(config::base_tensors_of(wider), 1), Element::bf16);
  write_file(path("other/config.json"), config::hf_config_text(wider, "bfloat16"));
  EXPECT_THAT(complaint(merge(trained(), path("other"))), HasSubstr("do not belong to the model"));

  EXPECT_THAT(complaint(merge(hf())), HasSubstr("there is nothing to merge"));
  EXPECT_THAT(complaint(merge(path("nowhere"))), HasSubstr("there are no weights at"));
  fs::rename(hf(), path("moved"));
  EXPECT_THAT(complaint(merge(trained())), HasSubstr("which is not here"));
  EXPECT_THAT(complaint(merge(trained(), path("nowhere"))), HasSubstr("there are no weights at"));
}

TEST_F(CkptMerge, damageIsNotMerged) {
  import("base", shape, base);
  flip_bit(path("base/step-00000000/shard-00000.h5"),
           8 * (fs::file_size(path("base/step-00000000/shard-00000.h5")) / 3));
  EXPECT_THAT(complaint(merge(trained(), path("base/step-00000000")), Exit::runtime), HasSubstr("damaged"));
}

TEST_F(CkptMerge, adaptersAloneAreNoModel) {
  ExportOrder order;
  order.path = trained();
  order.out = path("x.safetensors");
  EXPECT_THAT(complaint(order), HasSubstr("adapters go into a folder"));
  order.out = path("x");
  order.polyglot = true;
  EXPECT_THAT(complaint(order), HasSubstr("adapters go into a folder"));
  order.polyglot = false;
  run(order);
  order.path = path("x/");
  order.out = path("y");
  EXPECT_THAT(complaint(order), AllOf(HasSubstr("as peft writes it already"), HasSubstr("--merge")));
  import("unscaled", adapted(), adapters);  // as checkpoints were before they had a table for it
  order.path = path("unscaled");
  EXPECT_THAT(complaint(order), HasSubstr("does not say how they are scaled"));
}

}  // namespace
}  // namespace holdfast::tool
