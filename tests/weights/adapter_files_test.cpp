// Which adapters belong to which model, and what is no adapter.
#include "src/weights/adapter_files.hpp"

#include <gmock/gmock.h>

#include "src/weights/model_files.hpp"
#include "tests/weights/folders.hpp"

namespace holdfast::weights {
namespace {

using ::holdfast::test::refusal_of;
using ::holdfast::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;

TEST(AdapterFiles, OfPeftAreReadByRanges) {
  const Scratch scratch;
  auto facts = small_adapters();
  facts.base_digest = "0123456789abcdef";
  const AdapterFiles files(write_peft(scratch, "peft", small_shape(), facts));
  EXPECT_EQ(files.facts().base_digest, facts.base_digest);
  const config::ModelShape shape = files.require(small_shape());
  EXPECT_EQ(shape.adapters, config::adapters_of(facts.lora));
  const auto tensors = tensors_of_model(config::tensors_of(shape));
  std::vector<float> some(5);
  const int which = 3;
  files.read({tensors, {{which, 7, 5, some.data()}}});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(some[i], value_at(config::tensors_of(shape)[which].name, 7 + i));
}

TEST(AdapterFiles, OfAnotherModelAreRefused) {
  const Scratch scratch;
  auto facts = small_adapters();
  facts.base = "/where/they/were/trained";
  const AdapterFiles files(write_peft(scratch, "peft", small_shape(), facts));
  auto wide = small_shape(), deep = small_shape(), shallow = small_shape();
  wide.name = "wide";
  wide.width = 12;
  deep.layers = 3;
  shallow.layers = 1;
  EXPECT_THAT(refusal_of([&] { files.require(wide); }).text,
              AllOf(HasSubstr("do not belong to the model wide"),
                    HasSubstr("lora_A.weight is 3 x 8, and the model takes 3 x 12"),
                    HasSubstr("/where/they/were/trained")));
  EXPECT_THAT(refusal_of([&] { files.require(deep); }).text, HasSubstr("there is no model/model.layers.2."));
  EXPECT_THAT(refusal_of([&] { files.require(shallow); }).text,
              HasSubstr("nothing in the model takes \"model/model.layers.1."));
}

TEST(AdapterFiles, WhatIsNoneIsRefused) {
  const Scratch scratch;
  const auto says = [&](const std::string& name) {
    const auto refusal = refusal_of([&] { AdapterFiles(scratch.path() / name, "lora.weights names it"); });
    EXPECT_EQ(refusal.exit, Exit::usage);
    return refusal.text;
  };
  EXPECT_THAT(says("nowhere"), HasSubstr("there are no adapters at"));
  write_model(scratch, "whole", small_shape());
  EXPECT_THAT(says("whole"), AllOf(HasSubstr("there are no adapters in"), HasSubstr("adapter_config.json")));
  const std::string config = config::peft_config_text(small_adapters());
  scratch.write("bare/adapter_config.json", config);
  EXPECT_THAT(says("bare"), HasSubstr("it has no adapter_model.safetensors"));
  scratch.write("odd/adapter_config.json", config);
  scratch.write("odd/adapter_model.safetensors", file_of(config::base_tensors_of(small_shape())));
  EXPECT_THAT(says("odd"), HasSubstr("\"model.embed_tokens.weight\" is no tensor of an adapter"));
  scratch.write("cut/adapter_config.json", config);
  scratch.write("cut/adapter_model.safetensors", "x");
  EXPECT_THAT(says("cut"), HasSubstr("not a usable safetensors file"));
}

}  // namespace
}  // namespace holdfast::weights
