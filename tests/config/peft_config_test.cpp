// adapter_config.json: what peft wrote is understood, and nothing that we would compute otherwise is.
#include "src/config/peft_config.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "src/config/load.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using ::holdfast::test::refusal_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

/// As peft 0.21 saves it.
Json saved() {
  return Json::parse(
      R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
    "base_model_name_or_path": "/models/llama", "bias": "none", "corda_config": null, "ensure_weight_tying": false,
    "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": false,
    "init_lora_weights": true, "kasa_config": null, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 16, "lora_bias": false, "lora_dropout": 0.05,
    "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
    "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 4,
    "rank_pattern": {}, "revision": null, "target_modules": ["v_proj", "up_proj", "q_proj"],
    "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
    "use_dora": false, "use_qalora": false, "use_rslora": false, "velora_config": null})");
}

AdapterFacts read_adapters(const Json& json) {
  return parse_peft_config(json.dump(), "x/adapter_config.json");
}

TEST(PeftConfig, WhatPeftWritesIsUnderstood) {
  const AdapterFacts found = read_adapters(saved());
  EXPECT_EQ(found.lora.rank, 4);
  EXPECT_EQ(found.lora.alpha, 16);
  EXPECT_EQ(found.lora.dropout, 0.05);
  EXPECT_THAT(found.lora.targets, ElementsAre("q_proj", "v_proj", "up_proj"));
  EXPECT_EQ(found.base, "/models/llama");
  Json rooted = saved();
  rooted["use_rslora"] = true;
  EXPECT_DOUBLE_EQ(adapters_of(read_adapters(rooted).lora).scale, 16 / 2.0) << "alpha / sqrt(r)";
}

TEST(PeftConfig, OursComesBack) {
  AdapterFacts facts;
  facts.lora.rank = 3, facts.lora.alpha = 7, facts.lora.dropout = 0.25,
  facts.lora.targets = {"k_proj", "down_proj"};
  for (const std::string base : {"", "/a/base"}) {
    facts.base = base;
    const AdapterFacts again = parse_peft_config(peft_config_text(facts), "x");
    EXPECT_EQ(again.lora, facts.lora);
    EXPECT_EQ(again.base, base);
  }
}

TEST(PeftConfig, WhatWeWouldComputeOtherwiseIsRefused) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {R"({"peft_type": "LOHA"})", "peft_type is \"LOHA\""},
      {R"({"use_dora": true})", "\"use_dora\" is true"},
      {R"({"rank_pattern": {"layers.1.self_attn.q_proj": 8}})", "rank_pattern is"},
      {R"({"alpha_pattern": {"q_proj": 8}})", "alpha_pattern is"},
      {R"({"bias": "all"})", "bias is \"all\""},
      {R"({"lora_bias": true})", "\"lora_bias\" is true"},
      {R"({"modules_to_save": ["lm_head"]})", "\"modules_to_save\" is [\"lm_head\"]"},
      {R"({"layers_to_transform": [0]})", "\"layers_to_transform\""},
      {R"({"fan_in_fan_out": true})", "\"fan_in_fan_out\""},
      {R"({"init_lora_weights": "pissa"})", "weights that were changed for them"},
      {R"({"something_of_tomorrow": 1})", "\"something_of_tomorrow\" is 1"},
      {R"({"target_modules": ".*proj"})", "not a list of linear layers"},
      {R"({"target_modules": []})", "not a list of linear layers"},
      {R"({"target_modules": ["q_proj", "lm_head"]})", "target_modules has \"lm_head\""},
      {R"({"r": 0})", "r is 0, not a rank from 1 to"},
      {R"({"r": 2000000000000})", "not a rank"},
      {R"({"r": "4"})", "not a rank"},
      {R"({"lora_alpha": "x"})", "lora_alpha is \"x\", not a number"},
      {R"({"lora_alpha": -1})", "alpha must be above 0"},
      {R"({"lora_dropout": 1})", "below 1"}};
  for (const auto& [patch, complaint] : wrong) {
    Json json = saved();
    json.update(Json::parse(patch));
    const auto refusal = refusal_of([&] { read_adapters(json); });
    EXPECT_THAT(refusal.text, HasSubstr(complaint)) << patch;
    EXPECT_THAT(refusal.text, HasSubstr("x/adapter_config.json")) << patch;
  }
  for (const char* text : {"", "[]", "{", "{\"r\": 1, \"r\": 2}", "null"})
    EXPECT_THAT(refusal_of([&] { parse_peft_config(text, "x"); }).text,
                HasSubstr("cannot use the adapters of x"));
}

TEST(PeftConfig, TheModelFileOfACheckpointKeepsTheAdapters) {
  ModelShape shape = load_model("tiny");
  AdapterFacts facts;
  facts.lora.rank = 3, facts.lora.alpha = 7, facts.lora.dropout = 0.25,
  facts.lora.targets = {"k_proj", "down_proj"};
  facts.base = "/a/base";
  facts.base_digest = "0123456789abcdef";
  shape.adapters = adapters_of(facts.lora);
  const std::string toml = to_toml(shape) + to_toml(facts);
  EXPECT_EQ(parse_model(toml, "x"), shape);
  const auto again = parse_adapters(toml, "x");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->lora, facts.lora);
  EXPECT_EQ(again->base, facts.base);
  EXPECT_EQ(again->base_digest, facts.base_digest);
  EXPECT_FALSE(parse_adapters(to_toml(shape), "x"));
  EXPECT_THAT(refusal_of([&] { parse_model(to_toml(shape) + "\n[adapters]\nrank = 4\n", "x"); }).text,
              HasSubstr("adapters.alpha is missing"));
}

}  // namespace
}  // namespace holdfast::config
