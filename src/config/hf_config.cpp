#include "src/config/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/foreign_json.hpp"

namespace holdfast::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t largest_file = 16 << 20;
constexpr int max_layers = 4096, largest_size = 1 << 23;  // products of them stay far below 2^63

enum class Family { llama, qwen2, mistral };

Family family_of(const ForeignJson& in) {
  constexpr std::array<std::pair<std::string_view, Family>, 3> by_architecture = {
      {{"LlamaForCausalLM", Family::llama},
       {"Qwen2ForCausalLM", Family::qwen2},
       {"MistralForCausalLM", Family::mistral}}};
  constexpr std::array<std::pair<std::string_view, Family>, 3> by_type = {
      {{"llama", Family::llama}, {"qwen2", Family::qwen2}, {"mistral", Family::mistral}}};
  const auto look = [](const auto& table, const std::string& name) -> std::optional<Family> {
    for (const auto& [known, family] : table)
      if (known == name) return family;
    return {};
  };
  const std::string type = in.text("model_type");
  const Json& architectures = in.get("architectures");
  std::optional<Family> family = look(by_type, type);
  std::string name = type.empty() ? "it names no architecture" : "model_type " + quoted(type);
  if (!architectures.is_null()) {
    const bool one =
        architectures.is_array() && architectures.size() == 1 && architectures.front().is_string();
    if (!one) in.refuse("architectures is " + ForeignJson::shown(architectures) + ", not a list of one name");
    const auto architecture = architectures.front().get<std::string>();
    const auto named = look(by_architecture, architecture);
    if (named && family && named != family)
      in.refuse(fmt::format("architecture {} and model_type {} contradict each other", architecture, type));
    family = named;
    name = "architecture " + quoted(architecture);
  }
  if (!family)
    in.refuse(name +
              " is none that Holdfast computes: LlamaForCausalLM, Qwen2ForCausalLM, "
              "MistralForCausalLM");
  return *family;
}

/// What we do not compute, whatever the family.
void refuse_what_we_lack(const ForeignJson& in) {
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (in.flag(key, false)) in.refuse(fmt::format("{} is true, and these layers have no biases here", key));
  for (const char* key : {"attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop"})
    if (const Json& value = in.get(key); !value.is_null() && (!value.is_number() || value != 0))
      in.refuse(fmt::format("{} is {}, and there is no dropout of activations here", key,
                            ForeignJson::shown(value)));
  if (const std::string act = in.text("hidden_act"); !act.empty() && act != "silu" && act != "swish")
    in.refuse("hidden_act is " + quoted(act) + "; silu is what Holdfast computes");
  if (const Json& part = in.get("partial_rotary_factor"); !part.is_null() && (!part.is_number() || part != 1))
    in.refuse("partial_rotary_factor is " + ForeignJson::shown(part) + "; here all of a head is turned");
  if (!in.get("quantization_config").is_null())
    in.refuse("quantization_config is set: its weights are quantised, and the full ones are needed");
  if (const Json& code = in.get("auto_map"); !code.is_null())
    in.refuse("auto_map names code of the model's own: " + ForeignJson::shown(code));
}

/// A window hides nothing from sequences that are no longer than it: these are the ones that the model takes.
/// max_position_embeddings otherwise.
int max_sequence_within_windows(const ForeignJson& in, Family family, int max_sequence) {
  const Json& window = in.get("sliding_window");
  const Json& layers = in.get("layer_types");
  bool slides = family == Family::mistral;
  if (family == Family::qwen2) slides = in.flag("use_sliding_window", false);
  if (!layers.is_null()) {
    if (!layers.is_array()) in.refuse("layer_types is not a list");
    for (const Json& layer : layers) {
      if (layer == "full_attention") continue;
      if (layer != "sliding_attention") in.refuse("layer_types has " + ForeignJson::shown(layer));
      slides = true;
    }
  }
  if (!slides) return max_sequence;
  // Mistral's own default, where the key is missing.
  const bool missing = family == Family::mistral && window.is_null() && !in.has("sliding_window");
  if (window.is_null() && !missing) return max_sequence;
  const Json width = missing ? Json(4096) : window;
  if (!width.is_number_integer() || width < 1)
    in.refuse(fmt::format("sliding_window is {}", ForeignJson::shown(width)));
  return static_cast<int>(std::min<std::int64_t>(width.get<std::int64_t>(), max_sequence));
}

/// rope_parameters (version 5), or rope_theta and rope_scaling (version 4).
void read_rope(const ForeignJson& in, ModelShape& shape) {
  const Json& parameters = in.get("rope_parameters");
  const Json& scaling = parameters.is_null() ? in.get("rope_scaling") : parameters;
  const char* const name = parameters.is_null() ? "rope_scaling" : "rope_parameters";
  const auto inside = [&](const char* key) -> const Json& {
    static const Json none;
    if (scaling.is_null()) return none;
    const auto found = scaling.find(key);
    return found == scaling.end() ? none : *found;
  };
  if (!scaling.is_null() && !scaling.is_object())
    in.refuse(fmt::format("{} is {}", name, ForeignJson::shown(scaling)));
  const Json& theta = inside("rope_theta").is_null() ? in.get("rope_theta") : inside("rope_theta");
  if (!theta.is_null()) shape.rope_theta = in.positive(theta, "rope_theta");
  if (shape.rope_theta < 1) in.refuse("rope_theta is below 1");
  if (scaling.is_null()) return;
  const Json& part = inside("partial_rotary_factor");
  if (!part.is_null() && part != 1)
    in.refuse(fmt::format("{}.partial_rotary_factor is {}; here all of a head is turned", name,
                          ForeignJson::shown(part)));
  const Json& type = inside("rope_type").is_null() ? inside("type") : inside("rope_type");
  if (const Json& old = inside("type"); !old.is_null() && old != type)
    in.refuse(fmt::format("{} is of type {} and of type {}", name, ForeignJson::shown(old),
                          ForeignJson::shown(type)));
  if (type == "default") return;
  if (type != "llama3")
    in.refuse(fmt::format("{} is of type {}; Holdfast computes default and llama3", name,
                          ForeignJson::shown(type)));
  const auto number = [&](const char* key) {
    return in.positive(inside(key), fmt::format("{}.{}", name, key));
  };
  shape.rope_scaling_factor = number("factor");
  shape.rope_low_frequency = number("low_freq_factor");
  shape.rope_high_frequency = number("high_freq_factor");
  const double original = number("original_max_position_embeddings");
  if (original > std::numeric_limits<int>::max() || original != static_cast<int>(original))
    in.refuse(fmt::format("{}.original_max_position_embeddings is {}", name, original));
  shape.rope_original_sequence = static_cast<int>(original);
  if (shape.rope_scaling_factor < 1) in.refuse(fmt::format("{}.factor is below 1", name));
  if (shape.rope_low_frequency >= shape.rope_high_frequency)
    in.refuse(fmt::format("{}.low_freq_factor is not below high_freq_factor", name));
  if (shape.rope_scaling_factor > 1) return;
  // Stretched by 1 is as it was, whatever the other numbers say.
  const ModelShape plain;
  shape.rope_low_frequency = plain.rope_low_frequency;
  shape.rope_high_frequency = plain.rope_high_frequency;
  shape.rope_original_sequence = plain.rope_original_sequence;
}

void read_sizes(const ForeignJson& in, Family family, ModelShape& shape) {
  constexpr int any = std::numeric_limits<int>::max();
  shape.vocabulary = in.size("vocab_size", largest_size);
  shape.width = in.size("hidden_size", largest_size);
  shape.ffn = in.size("intermediate_size", largest_size);
  shape.layers = in.size("num_hidden_layers", max_layers);
  shape.heads = in.size("num_attention_heads", shape.width);
  shape.max_sequence = in.size("max_position_embeddings", any);
  // Llama's classes take as many as there are heads; the others' defaults belong to one size of model.
  const bool as_heads = family == Family::llama && in.get("num_key_value_heads").is_null();
  shape.kv_heads = as_heads ? shape.heads : in.size("num_key_value_heads", shape.heads);
  if (shape.width % shape.heads != 0)
    in.refuse(
        fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", shape.width, shape.heads));
  if (shape.heads % shape.kv_heads != 0)
    in.refuse(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", shape.heads,
                          shape.kv_heads));
  if (shape.head_size() % 2 != 0)
    in.refuse(fmt::format("the head size {} is odd, and rotary embedding turns pairs", shape.head_size()));
  if (const Json& head = in.get("head_dim"); !head.is_null() && head != shape.head_size())
    in.refuse(fmt::format("head_dim is {}; Holdfast computes hidden_size / num_attention_heads = {}",
                          ForeignJson::shown(head), shape.head_size()));
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
  const Family family = family_of(in);
  HfConfig out;
  ModelShape& shape = out.shape;
  shape.name = name;
  read_sizes(in, family, shape);
  refuse_what_we_lack(in);
  shape.max_sequence = max_sequence_within_windows(in, family, shape.max_sequence);
  read_rope(in, shape);
  const Json& epsilon = in.get("rms_norm_eps");
  shape.norm_epsilon = epsilon.is_null() ? 1e-6 : in.positive(epsilon, "rms_norm_eps");
  shape.tied_embeddings = in.flag("tie_word_embeddings", false);
  shape.qkv_bias = family == Family::qwen2;
  out.dtype = in.get("dtype").is_null() ? in.text("torch_dtype") : in.text("dtype");
  out.ids = token_ids(in);
  return out;
}

std::string hf_config_text(const ModelShape& m, std::string_view dtype, const HfTokenIds& ids) {
  Json json = {{"architectures", {m.qkv_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
               {"model_type", m.qkv_bias ? "qwen2" : "llama"},
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
  if (m.qkv_bias) {
    json["use_sliding_window"] = false, json["sliding_window"] = nullptr;
  } else {
    json["attention_bias"] = json["mlp_bias"] = false;
    json["head_dim"] = m.head_size();
  }
  if (m.rope_scaling_factor != 1)
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", m.rope_scaling_factor},
                            {"low_freq_factor", m.rope_low_frequency},
                            {"high_freq_factor", m.rope_high_frequency},
                            {"original_max_position_embeddings", m.rope_original_sequence}};
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
