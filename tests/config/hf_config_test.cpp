// config.json: what transformers wrote (tests/model/golden) is understood, and nothing that we would compute
// otherwise is.
#include "src/config/hf_config.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using ::holdfast::test::refusal_of;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(HOLDFAST_SOURCE_DIR) / "tests/model/golden" / name / "config.json";
}

/// Llama 3.1 8B as it is published, in the spelling of version 4.
Json llama31() {
  return Json::parse(
      R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})");
}

HfConfig read(const Json& json) { return parse_hf_config(json.dump(), "x/config.json", "llama3.1-8b"); }
std::string complaint(const Json& json) {
  return refusal_of([&] { read(json); }).text;
}

TEST(HfConfig, IsTheShapeThatOurOwnFileHas) {
  const HfConfig found = read(llama31());
  auto ours = load_model("llama3.1-8b");
  ours.max_sequence = found.shape.max_sequence;
  EXPECT_EQ(to_toml(found.shape), to_toml(ours));
  EXPECT_EQ(found.dtype, "bfloat16");
  EXPECT_EQ(found.ids.eos, "[128001,128008,128009]");
  EXPECT_EQ(found.ids.pad, "null");
}

TEST(HfConfig, WhatTransformersWrites) {
  const auto llama3 = load_hf_config(golden("llama3")).shape;
  EXPECT_EQ(llama3.name, "llama3");
  EXPECT_EQ(llama3.rope_scaling_factor, 8);
  EXPECT_EQ(llama3.rope_original_sequence, 64);
  EXPECT_EQ(llama3.rope_theta, 500000);
  EXPECT_EQ(llama3.kv_heads, 2);
  const auto qwen2 = load_model(golden("qwen2").parent_path().string());  // a folder is a model file too
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tied_embeddings);
  EXPECT_EQ(qwen2.norm_epsilon, 1e-6);
  EXPECT_TRUE(load_model(golden("llama_tied").string()).tied_embeddings);
  EXPECT_FALSE(load_model(golden("llama2").string()).tied_embeddings);
}

TEST(HfConfig, WhatIsPrintedIsRead) {
  for (const char* name :
       {"llama2", "llama3", "qwen2", "llama_tied", "qwen3", "nemo", "llama_biased", "linear", "dynamic",
        "yarn", "smollm3", "phi3", "granite", "phi4_mini", "olmo2", "olmo3"}) {
    const auto shape = load_hf_config(golden(name)).shape;
    const auto again = parse_hf_config(hf_config_text(shape, "float16", {"1", "[2,3]", "0"}), "x", name);
    EXPECT_EQ(again.shape, shape) << name;
    EXPECT_EQ(again.dtype, "float16");
    EXPECT_EQ(again.ids.eos, "[2,3]");
  }
  Json unstretched = llama31();
  unstretched["rope_scaling"]["factor"] = 1, unstretched["rope_scaling"]["low_freq_factor"] = 2;
  const auto shape = read(unstretched).shape;
  EXPECT_EQ(parse_hf_config(hf_config_text(shape, "float16"), "x", shape.name).shape, shape);
}

TEST(HfConfig, OldFilesLeaveOutWhatWasNotInventedYet) {
  Json json = llama31();
  for (const char* key : {"num_key_value_heads", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias",
                          "tie_word_embeddings", "attention_dropout", "rms_norm_eps"})
    json.erase(key);
  const auto shape = read(json).shape;
  EXPECT_EQ(shape.kv_heads, 32);
  EXPECT_EQ(shape.rope_theta, 10000);
  EXPECT_EQ(shape.norm_epsilon, 1e-6);
}

TEST(HfConfig, RefusesWhatWeWouldComputeOtherwise) {
  const struct {
    const char* patch;
    const char* says;
  } rows[] = {
      {R"({"architectures": ["GPT2LMHeadModel"]})", "architecture \"GPT2LMHeadModel\" is none"},
      {R"({"architectures": ["LlamaForCausalLM", "X"]})", "not a list of one name"},
      {R"({"architectures": ["Qwen2ForCausalLM"]})", "contradict each other"},
      {R"({"architectures": null, "model_type": "gemma2"})", "model_type \"gemma2\" is none"},
      {R"({"architectures": null, "model_type": null})", "it names no architecture"},
      {R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "attention_bias": true})",
       "attention_bias is true, and the layers of MistralForCausalLM have no such biases"},
      {R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "mlp_bias": true})",
       "mlp_bias is true"},
      {R"({"attention_dropout": 0.1})", "attention_dropout is 0.1"},
      {R"({"hidden_act": "gelu"})", "hidden_act is \"gelu\""},
      {R"({"head_dim": 127})", "the head size 127 is odd"},
      {R"({"rope_scaling": {"type": "linear"}})", "is of type \"linear\" and of type \"llama3\""},
      {R"({"rope_scaling": {"rope_type": null, "type": "su"}})", "is of type \"su\"; Holdfast"},
      {R"({"rope_scaling": {"rope_type": "longrope", "factor": 2}})", "is of type \"longrope\""},
      {R"({"rope_scaling": {"rope_type": "yarn", "truncate": false}})", "truncate is false"},
      {R"({"rope_scaling": {"rope_type": "yarn", "beta_slow": 40}})", "beta_slow is not below beta_fast"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 0.5}})", "factor is below 1"},
      {R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"})",
       "is of type \"llama3\", which Holdfast does not compute of Phi3ForCausalLM"},
      {R"({"no_rope_layers": [1, 0]})", "no_rope_layers is set, and LlamaForCausalLM has none"},
      {R"({"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "num_hidden_layers": 4,
           "no_rope_layers": [1, 0, 1, 1]})",
       "no_rope_layers has layer 3 otherwise than every 2th"},
      {R"({"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "no_rope_layers": [1]})",
       "no_rope_layers is [1]"},
      {R"({"rope_scaling": {"factor": null}})", "rope_scaling.factor is null"},
      {R"({"rope_scaling": {"low_freq_factor": 9}})", "not below high_freq_factor"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
       "rope_parameters are of kinds of layers, which all turn alike in LlamaForCausalLM"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor is 0.5"},
      {R"({"quantization_config": {"bits": 4}})", "quantization_config is set"},
      {R"({"auto_map": {"AutoModelForCausalLM": "m.M"}})", "auto_map names code"},
      {R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": 0})",
       "sliding_window is 0"},
      {R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})",
       "layer_types has \"linear_attention\""},
      {R"({"layer_types": ["full_attention"]})", "layer_types is no list of 32 names"},
      {R"({"hidden_size": null})", "it has no hidden_size"},
      {R"({"hidden_size": 4096.5})", "hidden_size is 4096.5, not a number from 1"},
      {R"({"hidden_size": -1})", "hidden_size is -1"},
      {R"({"hidden_size": 4095})", "not a multiple of num_attention_heads"},
      {R"({"num_hidden_layers": 1000000000})", "not a number from 1 to 4096"},
      {R"({"num_key_value_heads": 7})", "not a multiple of num_key_value_heads"},
      {R"({"rope_theta": "x"})", "rope_theta is \"x\", not a number"},
      {R"({"rms_norm_eps": 0})", "rms_norm_eps is 0, not a positive number"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings is 1, not true or false"},
  };
  for (const auto& row : rows) {
    Json json = llama31();
    json.merge_patch(Json::parse(row.patch));
    EXPECT_THAT(complaint(json), HasSubstr(row.says)) << row.patch;
    EXPECT_THAT(complaint(json), HasSubstr("x/config.json")) << row.patch;
  }
}

TEST(HfConfig, AShapeIsExportedAsAClassThatComputesIt) {
  const auto class_of = [](const ModelShape& shape) {
    return Json::parse(hf_config_text(shape, "float32")).at("architectures").at(0).get<std::string>();
  };
  ModelShape shape;
  EXPECT_EQ(class_of(shape), "LlamaForCausalLM");
  shape.qkv_bias = true;
  EXPECT_EQ(class_of(shape), "Qwen2ForCausalLM");
  shape.o_bias = shape.mlp_bias = true;
  EXPECT_EQ(class_of(shape), "LlamaForCausalLM");
  shape.qk_norm = true;
  EXPECT_THAT(refusal_of([&] { class_of(shape); }).text, HasSubstr("no class of transformers computes"));
  shape.mlp_bias = false;
  EXPECT_EQ(class_of(shape), "Qwen3ForCausalLM");
}

TEST(HfConfig, ReadsWhatStretchesRotations) {
  Json json = llama31();
  json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32768}};
  const ModelShape yarn = read(json).shape;
  EXPECT_EQ(yarn.rope_type, RopeType::yarn);
  EXPECT_EQ(yarn.rope_high_frequency, 32);
  EXPECT_DOUBLE_EQ(yarn.rope_magnitude, 0.1 * std::log(4.0) + 1);
  json["rope_scaling"]["mscale"] = 1, json["rope_scaling"]["mscale_all_dim"] = 1;
  EXPECT_EQ(read(json).shape.rope_magnitude, 1);
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 1}};
  ModelShape plain = read(json).shape;
  json.erase("rope_scaling");
  EXPECT_EQ(read(json).shape, plain);
}

TEST(HfConfig, ReadsWhichBlocksHaveNoPositions) {
  Json json = llama31();
  json["architectures"] = {"SmolLM3ForCausalLM"}, json["model_type"] = "smollm3";
  for (const char* key : {"rope_scaling", "rope_theta", "tie_word_embeddings"}) json.erase(key);
  EXPECT_EQ(read(json).shape.nope_every, 4);
  EXPECT_EQ(read(json).shape.rope_theta, 2e6);
  EXPECT_TRUE(read(json).shape.tied_embeddings);
  json["num_hidden_layers"] = 3;
  EXPECT_EQ(read(json).shape.nope_every, 0);
  json["num_hidden_layers"] = 5, json["no_rope_layers"] = {1, 1, 0, 1, 1};
  EXPECT_EQ(read(json).shape.nope_every, 3);
  json["no_rope_layers"] = {1, 1, 1, 1, 1};
  EXPECT_EQ(read(json).shape.nope_every, 0);
}

TEST(HfConfig, ReadsTheFactorsOfGranite) {
  Json json = llama31();
  json.erase("rope_scaling");
  json["architectures"] = {"GraniteForCausalLM"}, json["model_type"] = "granite";
  ModelShape shape = read(json).shape;
  EXPECT_EQ(shape.attention_multiplier, 1) << "the class's own default, not that of other models";
  EXPECT_EQ(std::pair(shape.embedding_multiplier, shape.logits_scaling), std::pair(1.0, 1.0));
  json["embedding_multiplier"] = 12, json["attention_multiplier"] = 0.0078125;
  json["residual_multiplier"] = 0.22, json["logits_scaling"] = 16;
  shape = read(json).shape;
  EXPECT_EQ(std::pair(shape.embedding_multiplier, shape.attention_multiplier), std::pair(12.0, 0.0078125));
  EXPECT_EQ(std::pair(shape.residual_multiplier, shape.logits_scaling), std::pair(0.22, 16.0));
  json["residual_multiplier"] = 0;
  EXPECT_THAT(complaint(json), HasSubstr("residual_multiplier is 0, not a positive number"));
}

/// As Phi-4-mini has it, in the spelling of version 4.
TEST(HfConfig, ReadsLongropeUpToTheOriginalLength) {
  Json json = llama31();
  json["architectures"] = {"Phi3ForCausalLM"}, json["model_type"] = "phi3";
  json["hidden_size"] = 3072, json["num_attention_heads"] = 24;
  json["partial_rotary_factor"] = 0.75, json["original_max_position_embeddings"] = 4096;
  json["sliding_window"] = 262144;
  const std::vector<double> shorts(48, 1.5), longs(48, 20);
  json["rope_scaling"] = {{"type", "longrope"}, {"short_factor", shorts}, {"long_factor", longs}};
  const ModelShape shape = read(json).shape;
  EXPECT_EQ(shape.rotary_dim, 96);
  EXPECT_EQ(shape.max_sequence, 4096);
  EXPECT_EQ(shape.rope_type, RopeType::longrope);
  EXPECT_EQ(shape.rope_short_factors, shorts);
  EXPECT_DOUBLE_EQ(shape.rope_magnitude, std::sqrt(1 + std::log(32) / std::log(4096)));
  const Json written = Json::parse(hf_config_text(shape, "bfloat16"));
  for (const char* key : {"architectures", "max_position_embeddings", "original_max_position_embeddings",
                          "partial_rotary_factor", "rope_scaling"})
    EXPECT_EQ(written.at(key), json.at(key)) << key;
  const struct {
    const char* patch;
    const char* says;
  } rows[] = {
      {R"({"rope_scaling": {"short_factor": [1]}})", "rope_scaling.short_factor is no list of 48 numbers"},
      {R"({"rope_scaling": {"long_factor": null}})", "rope_scaling.long_factor is no list of 48 numbers"},
      {R"({"rope_scaling": {"factor": 8}})", "rope_scaling.factor is 8"},
      {R"({"rope_scaling": {"original_max_position_embeddings": 8192}})", "is 4096 and 8192"},
      {R"({"rope_scaling": {"partial_rotary_factor": 1}})", "partial_rotary_factor is 0.75 and 1"},
      {R"({"original_max_position_embeddings": 1})", "original_max_position_embeddings is 1"},
      {R"({"partial_rotary_factor": 0.758})", "which is no even part of a head of 128"},
  };
  for (const auto& row : rows) {
    Json patched = json;
    patched.merge_patch(Json::parse(row.patch));
    EXPECT_THAT(complaint(patched), HasSubstr(row.says)) << row.patch;
  }
  for (int pairs = 1; pairs < 64; ++pairs) {  // whatever part of a head it is, the export says so
    ModelShape part = shape;
    part.rotary_dim = 2 * pairs;
    part.rope_short_factors.resize(as_size(pairs), 1);
    part.rope_long_factors.resize(as_size(pairs), 1);
    EXPECT_EQ(parse_hf_config(hf_config_text(part, "bfloat16"), "x", part.name).shape, part);
  }
}

TEST(HfConfig, ReadsTheNormsOfOlmo2) {
  Json json = llama31();
  json.erase("rope_scaling");
  json["architectures"] = {"Olmo2ForCausalLM"}, json["model_type"] = "olmo2";
  const ModelShape shape = read(json).shape;
  EXPECT_TRUE(shape.qk_norm && shape.qk_norm_whole && shape.norm_after);
  EXPECT_EQ(Json::parse(hf_config_text(shape, "float32")).at("architectures").at(0), "Olmo2ForCausalLM");
}

TEST(HfConfig, ReadsTheHeadsOfQwen3) {
  Json json = llama31();
  json["architectures"] = {"Qwen3ForCausalLM"}, json["model_type"] = "qwen3";
  json.erase("rope_scaling");
  EXPECT_EQ(read(json).shape.head_dim, 0) << "128, as width / heads";
  json["num_attention_heads"] = 64;
  EXPECT_EQ(read(json).shape.head_dim, 128) << "the class's own default";
  json["head_dim"] = 80, json["hidden_size"] = 2500;
  const ModelShape shape = read(json).shape;
  EXPECT_EQ(shape.head_size(), 80);
  EXPECT_TRUE(shape.qk_norm && !shape.qkv_bias);
}

/// Every nth one of `layers` has full attention.
Json full_every(int n, int layers) {
  Json types = Json::array();
  for (int i = 1; i <= layers; ++i) types.push_back(i % n == 0 ? "full_attention" : "sliding_attention");
  return types;
}

TEST(HfConfig, ReadsWindows) {
  Json mistral = llama31();
  mistral["architectures"] = {"MistralForCausalLM"}, mistral["model_type"] = "mistral";
  mistral.erase("rope_scaling");
  EXPECT_EQ(read(mistral).shape.window, 4096) << "the class's own default";
  mistral["sliding_window"] = 2048;
  const ModelShape narrow = read(mistral).shape;
  EXPECT_EQ(std::tuple(narrow.window, narrow.full_every, narrow.max_sequence), std::tuple(2048, 0, 131072));
  const Json written = Json::parse(hf_config_text(narrow, "bfloat16"));
  EXPECT_EQ(written.at("architectures").at(0), "MistralForCausalLM");
  EXPECT_EQ(read(written).shape, narrow);
  mistral["sliding_window"] = "x";
  EXPECT_THAT(complaint(mistral), HasSubstr("sliding_window is \"x\""));
  mistral["sliding_window"] = 1 << 20;
  EXPECT_EQ(read(mistral).shape.window, 0) << "it hides nothing";
  EXPECT_EQ(read(mistral).shape.max_sequence, 131072);
  EXPECT_FALSE(read(mistral).shape.qkv_bias);
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(read(mistral).shape.kv_heads, 8);
  mistral.erase("num_key_value_heads");
  EXPECT_THAT(complaint(mistral), HasSubstr("it has no num_key_value_heads"));
}

TEST(HfConfig, ReadsWhichLayersHaveWindows) {
  Json qwen = llama31();
  qwen.erase("rope_scaling");
  qwen["architectures"] = {"Qwen2ForCausalLM"}, qwen["model_type"] = "qwen2";
  qwen["sliding_window"] = 4096;
  EXPECT_TRUE(read(qwen).shape.qkv_bias);
  EXPECT_EQ(read(qwen).shape.max_sequence, 131072) << "switched off unless use_sliding_window says so";
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(read(qwen).shape.max_sequence, 4096) << "which layers have it is not said";
  qwen["layer_types"] = full_every(4, 32);
  const ModelShape shape = read(qwen).shape;
  EXPECT_EQ(std::tuple(shape.window, shape.full_every, shape.max_sequence), std::tuple(4096, 4, 131072));
  EXPECT_TRUE(shape.has_window(0) && shape.has_window(2) && !shape.has_window(3) && shape.has_window(4));
  EXPECT_EQ(read(Json::parse(hf_config_text(shape, "bfloat16"))).shape, shape);
  qwen["layer_types"][0] = "full_attention";
  EXPECT_EQ(read(qwen).shape.window, 0);
  EXPECT_EQ(read(qwen).shape.max_sequence, 4096) << "another rule";
  Json llama = llama31();
  llama["layer_types"] = full_every(2, 32), llama["sliding_window"] = 512;
  EXPECT_EQ(read(llama).shape.max_sequence, 512) << "the class has no windows";
}

/// As OLMo 3 7B is published, in the spelling of version 4, where stretching is of layers without a window.
TEST(HfConfig, ReadsTheTwoRotationsOfOlmo3) {
  Json json = llama31();
  json["architectures"] = {"Olmo3ForCausalLM"}, json["model_type"] = "olmo3";
  json["sliding_window"] = 4096, json["layer_types"] = full_every(4, 32);
  json["rope_scaling"] = {{"rope_type", "yarn"},
                          {"factor", 8.0},
                          {"attention_factor", 1.2},
                          {"original_max_position_embeddings", 8192}};
  const ModelShape shape = read(json).shape;
  EXPECT_TRUE(shape.qk_norm_whole && shape.norm_after);
  EXPECT_EQ(std::tuple(shape.window, shape.full_every, shape.window_rope_theta),
            std::tuple(4096, 4, 500000.0));
  EXPECT_EQ(std::pair(shape.rope_type, shape.rope_scaling_factor), std::pair(RopeType::yarn, 8.0));
  Json written = Json::parse(hf_config_text(shape, "bfloat16"));
  EXPECT_EQ(written.at("architectures").at(0), "Olmo3ForCausalLM");
  EXPECT_EQ(read(written).shape, shape);
  // As version 5 writes it.
  written.erase("rope_scaling"), written.erase("rope_theta");
  EXPECT_EQ(read(written).shape, shape);
  written["rope_parameters"]["sliding_attention"]["rope_theta"] = 10000;
  EXPECT_EQ(read(written).shape.window_rope_theta, 10000);
  EXPECT_EQ(read(Json::parse(hf_config_text(read(written).shape, "bfloat16"))).shape, read(written).shape);
  written["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"factor", 2}};
  EXPECT_THAT(complaint(written), HasSubstr("rope_parameters.sliding_attention is of type \"linear\""));
  const Json full = written["rope_parameters"]["full_attention"];
  written["rope_parameters"] = full;
  EXPECT_THAT(complaint(written), HasSubstr("do not say that layers with a window are not meant"));
  json.erase("layer_types"), json.erase("sliding_window");
  EXPECT_EQ(read(json).shape, shape) << "the class's own defaults";
  json["sliding_window"] = nullptr;
  EXPECT_THAT(complaint(json), HasSubstr("sliding_window is null"));
  json["layer_types"] = full_every(1, 32);
  EXPECT_EQ(Json::parse(hf_config_text(read(json).shape, "bfloat16")).at("architectures").at(0),
            "Olmo2ForCausalLM")
      << "which computes the same";
  json["sliding_window"] = 4096, json["layer_types"][5] = "sliding_attention";
  EXPECT_THAT(complaint(json), HasSubstr("full_attention otherwise than every nth"));
}

TEST(HfConfig, RefusesTextsThatOthersMayReadOtherwise) {
  const auto says = [](const std::string& text) {
    return refusal_of([&] { parse_hf_config(text, "x", "y"); }).text;
  };
  EXPECT_THAT(says(""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(says("{\"a\": 1, \"a\": 2}"), HasSubstr("names \"a\" twice"));
  EXPECT_THAT(says("{\"a\": " + std::string(100000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(says("{\"a\": \xff}"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal_of([] { load_model("/nowhere/config.json"); }).text, HasSubstr("cannot read"));
}

}  // namespace
}  // namespace holdfast::config
