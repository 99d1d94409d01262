#include "src/config/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/foreign_json.hpp"
#include "src/config/hf_family.hpp"
#include "src/config/hf_positions.hpp"

namespace holdfast::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t largest_file = 16 << 20;
constexpr int max_layers = 4096, largest_size = 1 << 23;  // products of them stay far below 2^63

/// What we do not compute, whatever the family.
void refuse_what_we_lack(const ForeignJson& in) {
  for (const char* key : {"attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop"})
    if (const Json& value = in.get(key); !value.is_null() && (!value.is_number() || value != 0))
      in.refuse(fmt::format("{} is {}, and there is no dropout of activations here", key,
                            ForeignJson::shown(value)));
  if (const std::string act = in.text("hidden_act"); !act.empty() && act != "silu" && act != "swish")
    in.refuse("hidden_act is " + quoted(act) + "; silu is what Holdfast computes");
  if (!in.get("quantization_config").is_null())
    in.refuse("quantization_config is set: its weights are quantised, and the full ones are needed");
  if (const Json& code = in.get("auto_map"); !code.is_null())
    in.refuse("auto_map names code of the model's own: " + ForeignJson::shown(code));
}

void read_sizes(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  constexpr int any = std::numeric_limits<int>::max();
  shape.vocabulary = in.size("vocab_size", largest_size);
  shape.width = in.size("hidden_size", largest_size);
  shape.ffn = in.size("intermediate_size", largest_size);
  shape.layers = in.size("num_hidden_layers", max_layers);
  shape.heads = in.size("num_attention_heads", shape.width);
  shape.max_sequence = in.size("max_position_embeddings", any);
  // Llama's classes take as many as there are heads; the others' defaults belong to one size of model.
  const bool as_heads = family.any_kv_heads && in.get("num_key_value_heads").is_null();
  shape.kv_heads = as_heads ? shape.heads : in.size("num_key_value_heads", shape.heads);
  shape.head_dim = in.get("head_dim").is_null() ? family.head_dim : in.size("head_dim", largest_size);
  if (shape.head_dim == 0 && shape.width % shape.heads != 0)
    in.refuse(
        fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", shape.width, shape.heads));
  if (shape.heads % shape.kv_heads != 0)
    in.refuse(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", shape.heads,
                          shape.kv_heads));
  if (shape.head_size() % 2 != 0)
    in.refuse(fmt::format("the head size {} is odd, and rotary embedding turns pairs", shape.head_size()));
  if (shape.query_width() == shape.width) shape.head_dim = 0;  // as it follows from the others
}

void read_biases(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  const auto has = [&](const char* key, bool known) {
    const bool is = in.flag(key, false);
    if (is && !known)
      in.refuse(fmt::format("{} is true, and the layers of {} have no such biases", key, family.hf_class));
    return is;
  };
  shape.o_bias = has("attention_bias", family.attention_bias);
  shape.qkv_bias = shape.o_bias || family.qkv_bias;
  shape.mlp_bias = has("mlp_bias", family.mlp_bias);
}

void read_multipliers(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  if (!family.multipliers) return;
  const auto factor = [&](const char* key) {
    return in.get(key).is_null() ? 1 : in.positive(in.get(key), key);
  };
  shape.embedding_multiplier = factor("embedding_multiplier");
  shape.attention_multiplier = factor("attention_multiplier");
  shape.residual_multiplier = factor("residual_multiplier");
  shape.logits_scaling = factor("logits_scaling");
}

HfTokenIds token_ids(const ForeignJson& in) {
  const auto id = [&](const char* key) -> std::string {
    const Json& value = in.get(key);
    bool good = value.is_number_unsigned() || value.is_array();
    if (value.is_array())
      for (const Json& one : value) good = good && one.is_number_unsigned();
    return good ? value.dump() : "null";
  };
  return {id("bos_token_id"), id("eos_token_id"), id("pad_token_id")};
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& path, const std::string& name) {
  const ForeignJson in(text, "the model of " + path);
  const HfFamily& family = hf_family_of(in);
  HfConfig out;
  ModelShape& shape = out.shape;
  shape.name = name;
  read_sizes(in, family, shape);
  refuse_what_we_lack(in);
  read_positions(in, family, shape);
  const Json& epsilon = in.get("rms_norm_eps");
  shape.norm_epsilon = epsilon.is_null() ? family.epsilon : in.positive(epsilon, "rms_norm_eps");
  shape.tied_embeddings = in.flag("tie_word_embeddings", family.tied);
  read_biases(in, family, shape);
  read_multipliers(in, family, shape);
  shape.qk_norm = family.qk_norm;
  shape.qk_norm_whole = family.qk_norm_whole;
  shape.norm_after = family.norm_after;
  shape.fused = family.fused;
  out.dtype = in.get("dtype").is_null() ? in.text("torch_dtype") : in.text("dtype");
  out.ids = token_ids(in);
  return out;
}

std::string hf_config_text(const ModelShape& m, std::string_view dtype, const HfTokenIds& ids) {
  const HfFamily* const family = hf_family_of(m);
  if (family == nullptr)
    throw Error(Exit::usage, fmt::format("no class of transformers computes the model {}", m.name),
                fmt::format("its biases, norms, positions and fused tensors do not go together in {}",
                            fmt::join(hf_classes(), ", ")),
                "Write its tensors alone, with `holdfast ckpt consolidate`?");
  Json json = {{"architectures", {family->hf_class}},
               {"model_type", family->model_type},
               {"attention_dropout", 0.0},
               {"hidden_act", "silu"},
               {"hidden_size", m.width},
               {"initializer_range", 0.02},
               {"intermediate_size", m.ffn},
               {"max_position_embeddings", m.max_sequence},
               {"num_attention_heads", m.heads},
               {"num_hidden_layers", m.layers},
               {"num_key_value_heads", m.kv_heads},
               {"rms_norm_eps", m.norm_epsilon},
               {"rope_theta", m.rope_theta},
               {"rope_scaling", nullptr},
               {"tie_word_embeddings", m.tied_embeddings},
               {"torch_dtype", dtype},
               {"use_cache", true},
               {"vocab_size", m.vocabulary},
               {"bos_token_id", json_from<Json>(ids.bos)},
               {"eos_token_id", json_from<Json>(ids.eos)},
               {"pad_token_id", json_from<Json>(ids.pad)}};
  if (family->attention_bias) json["attention_bias"] = m.o_bias;
  if (family->mlp_bias) json["mlp_bias"] = m.mlp_bias;
  if (m.head_dim > 0 || !family->qkv_bias) json["head_dim"] = m.head_size();
  if (family->multipliers) {
    json["embedding_multiplier"] = m.embedding_multiplier;
    json["attention_multiplier"] = m.attention_multiplier > 0
                                       ? m.attention_multiplier
                                       : 1 / std::sqrt(static_cast<double>(m.head_size()));
    json["residual_multiplier"] = m.residual_multiplier;
    json["logits_scaling"] = m.logits_scaling;
  }
  write_positions(json, *family, m);
  return json.dump(2) + "\n";
}

std::optional<fs::path> find_hf_config(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (fs::is_regular_file(path / "config.json", ignored)) return path / "config.json";
  } else if (path.extension() == ".json") {
    return path;
  }
  return {};
}

HfConfig load_hf_config(const fs::path& config_json) {
  std::error_code error;
  const auto bytes = fs::file_size(config_json, error);
  if (error) throw Error(Exit::usage, "cannot read " + config_json.string(), error.message());
  if (static_cast<std::int64_t>(bytes) > largest_file)
    throw Error(Exit::usage, "cannot use the model of " + config_json.string(),
                fmt::format("it has {} bytes, which is no config.json", bytes));
  const fs::path folder = fs::absolute(config_json).lexically_normal().parent_path();
  return parse_hf_config(files::read_text(config_json), config_json.string(),
                         folder.has_filename() ? folder.filename().string() : "model");
}

}  // namespace holdfast::config
