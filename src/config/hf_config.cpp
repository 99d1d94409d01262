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
#include "src/config/choices.hpp"
#include "src/config/foreign_json.hpp"

namespace holdfast::config {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t largest_file = 16 << 20;
constexpr int max_layers = 4096, largest_size = 1 << 23;  // products of them stay far below 2^63

/// Which layers of a class have a sliding window, where layer_types does not say so.
enum class Window { none, all, if_used };

/// What a class of transformers computes, as far as its config.json does not say it: the defaults of its
/// configuration, and what is written into its code.
struct Family {
  std::string_view hf_class, model_type;
  Window window = Window::none;
  int missing_window = 0;                         ///< where the key is missing; 0: none
  bool qkv_bias = false, qk_norm = false;         ///< always
  bool attention_bias = false, mlp_bias = false;  ///< has the key; of q_proj, k_proj, v_proj and o_proj
  int head_dim = 0;                               ///< where the key is missing; 0: width / heads
  bool any_kv_heads = false;                      ///< where the key is missing: as many as heads
  bool nope = false;                              ///< some layers have no rotary positions
  bool qk_norm_whole = false, norm_after = false;
  bool fused = false;
  bool longrope = false;                 ///< it, or no stretching; and parts of heads may be turned
  bool multipliers = false;              ///< has Granite's factors, each 1 where its key is missing
  double theta = 10000, epsilon = 1e-6;  ///< where the keys are missing
  bool tied = false;                     ///< where the key is missing
};
/// modeling_NAME.py and configuration_NAME.py of transformers 4 and 5. A shape is exported as the first class
/// that computes it.
constexpr std::array families = {
    Family{.hf_class = "LlamaForCausalLM",
           .model_type = "llama",
           .attention_bias = true,
           .mlp_bias = true,
           .any_kv_heads = true},
    Family{
        .hf_class = "Qwen2ForCausalLM", .model_type = "qwen2", .window = Window::if_used, .qkv_bias = true},
    Family{.hf_class = "Qwen3ForCausalLM",
           .model_type = "qwen3",
           .window = Window::if_used,
           .qk_norm = true,
           .attention_bias = true,
           .head_dim = 128},
    Family{.hf_class = "MistralForCausalLM",
           .model_type = "mistral",
           .window = Window::all,
           .missing_window = 4096},
    Family{.hf_class = "SmolLM3ForCausalLM",
           .model_type = "smollm3",
           .window = Window::if_used,
           .attention_bias = true,
           .mlp_bias = true,
           .nope = true,
           .theta = 2e6,
           .tied = true},
    Family{.hf_class = "Phi3ForCausalLM",
           .model_type = "phi3",
           .window = Window::all,
           .any_kv_heads = true,
           .fused = true,
           .longrope = true,
           .epsilon = 1e-5},
    Family{.hf_class = "Olmo2ForCausalLM",
           .model_type = "olmo2",
           .qk_norm = true,
           .attention_bias = true,
           .any_kv_heads = true,
           .qk_norm_whole = true,
           .norm_after = true,
           .epsilon = 1e-5},
    Family{.hf_class = "GraniteForCausalLM",
           .model_type = "granite",
           .attention_bias = true,
           .mlp_bias = true,
           .any_kv_heads = true,
           .multipliers = true}};

std::vector<std::string_view> classes_of(std::span<const Family> all) {
  std::vector<std::string_view> out;
  for (const Family& family : all) out.push_back(family.hf_class);
  return out;
}

bool has_multipliers(const ModelShape& m) {
  return m.embedding_multiplier != 1 || m.attention_multiplier != 0 || m.residual_multiplier != 1 ||
         m.logits_scaling != 1;
}

/// It computes models of this shape.
bool computes(const Family& family, const ModelShape& m) {
  const bool attention_biases =
      family.attention_bias ? m.qkv_bias == m.o_bias : m.qkv_bias == family.qkv_bias && !m.o_bias;
  return attention_biases && (family.mlp_bias || !m.mlp_bias) && m.qk_norm == family.qk_norm &&
         m.qk_norm_whole == family.qk_norm_whole && m.norm_after == family.norm_after &&
         (family.nope || m.nope_every == 0) && (family.multipliers || !has_multipliers(m)) &&
         m.fused == family.fused &&
         (family.longrope ? m.rope_type == RopeType::longrope || m.rope_scaling_factor == 1
                          : m.rope_type != RopeType::longrope && m.rotary_dim == 0);
}

const Family& family_of(const ForeignJson& in) {
  const auto look = [](std::string_view Family::*key, const std::string& name) -> const Family* {
    const auto found = std::ranges::find(families, name, key);
    return found == families.end() ? nullptr : &*found;
  };
  const std::string type = in.text("model_type");
  const Json& architectures = in.get("architectures");
  const Family* family = look(&Family::model_type, type);
  std::string name = type.empty() ? "it names no architecture" : "model_type " + quoted(type);
  if (!architectures.is_null()) {
    const bool one =
        architectures.is_array() && architectures.size() == 1 && architectures.front().is_string();
    if (!one) in.refuse("architectures is " + ForeignJson::shown(architectures) + ", not a list of one name");
    const auto architecture = architectures.front().get<std::string>();
    const Family* const named = look(&Family::hf_class, architecture);
    if (named && family && named != family)
      in.refuse(fmt::format("architecture {} and model_type {} contradict each other", architecture, type));
    family = named;
    name = "architecture " + quoted(architecture);
  }
  if (!family)
    in.refuse(name +
              fmt::format(" is none that Holdfast computes: {}", fmt::join(classes_of(families), ", ")));
  return *family;
}

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

/// A window hides nothing from sequences that are no longer than it: these are the ones that the model takes.
/// max_position_embeddings otherwise.
int max_sequence_within_windows(const ForeignJson& in, const Family& family, int max_sequence) {
  const Json& window = in.get("sliding_window");
  const Json& layers = in.get("layer_types");
  bool slides = family.window == Window::all;
  if (family.window == Window::if_used) slides = in.flag("use_sliding_window", false);
  if (!layers.is_null()) {
    if (!layers.is_array()) in.refuse("layer_types is not a list");
    for (const Json& layer : layers) {
      if (layer == "full_attention") continue;
      if (layer != "sliding_attention") in.refuse("layer_types has " + ForeignJson::shown(layer));
      slides = true;
    }
  }
  if (!slides) return max_sequence;
  const bool missing = family.missing_window > 0 && window.is_null() && !in.has("sliding_window");
  if (window.is_null() && !missing) return max_sequence;
  const Json width = missing ? Json(family.missing_window) : window;
  if (!width.is_number_integer() || width < 1)
    in.refuse(fmt::format("sliding_window is {}", ForeignJson::shown(width)));
  return static_cast<int>(std::min<std::int64_t>(width.get<std::int64_t>(), max_sequence));
}

/// By which YaRN multiplies sines and cosines where nobody says it.
template <class Inside>
double magnitude_of(const ForeignJson& in, const Inside& inside, double factor) {
  const auto grown = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
  const Json &one = inside("mscale"), &all = inside("mscale_all_dim");
  const auto is_set = [](const Json& scale) { return !scale.is_null() && scale != 0; };
  if (!is_set(one) || !is_set(all)) return grown(1);
  return grown(in.positive(one, "mscale")) / grown(in.positive(all, "mscale_all_dim"));
}

/// How many elements of a head are turned.
template <class Inside>
void read_rotary_dim(const ForeignJson& in, const Family& family, const Inside& inside, ModelShape& shape) {
  const char* const key = "partial_rotary_factor";
  const Json &outer = in.get(key), &inner = inside(key);
  if (!outer.is_null() && !inner.is_null() && outer != inner)
    in.refuse(fmt::format("{} is {} and {}", key, ForeignJson::shown(outer), ForeignJson::shown(inner)));
  const Json& part = outer.is_null() ? inner : outer;
  if (part.is_null() || part == 1) return;
  if (!family.longrope)
    in.refuse(fmt::format("{} is {}; of {} all of a head is turned here", key, ForeignJson::shown(part),
                          family.hf_class));
  const double share = in.positive(part, key);
  shape.rotary_dim = share < 1 ? static_cast<int>(share * shape.head_size()) : 0;
  if (shape.rotary_dim < 2 || shape.rotary_dim % 2 != 0)
    in.refuse(fmt::format("{} is {}, which is no even part of a head of {}", key, ForeignJson::shown(part),
                          shape.head_size()));
}

/// What sines and cosines are multiplied by where nobody says it.
double longrope_magnitude(const ModelShape& m) {
  if (m.rope_scaling_factor <= 1) return 1;
  return std::sqrt(1 + std::log(m.rope_scaling_factor) / std::log(m.rope_original_sequence));
}

/// Sequences are those up to the original length: longer ones have other frequencies.
template <class Inside>
void read_longrope(const ForeignJson& in, const char* name, const Inside& inside, ModelShape& shape) {
  const char* const length = "original_max_position_embeddings";
  constexpr int usual = 4096, any = std::numeric_limits<int>::max();
  const Json &outer = in.get(length), &inner = inside(length);
  if (!outer.is_null() && !inner.is_null() && outer != inner)
    in.refuse(fmt::format("{} is {} and {}", length, ForeignJson::shown(outer), ForeignJson::shown(inner)));
  const Json& original = outer.is_null() ? inner : outer;
  if (!original.is_null() && (!original.is_number_integer() || original < 2 || original > any))
    in.refuse(fmt::format("{} is {}", length, ForeignJson::shown(original)));
  shape.rope_type = RopeType::longrope;
  shape.rope_original_sequence = original.is_null() ? usual : original.get<int>();
  shape.rope_scaling_factor =
      static_cast<double>(in.size("max_position_embeddings", any)) / shape.rope_original_sequence;
  if (shape.rope_scaling_factor < 1) in.refuse(fmt::format("{} is above max_position_embeddings", length));
  if (const Json& factor = inside("factor"); !factor.is_null() && factor != shape.rope_scaling_factor)
    in.refuse(fmt::format("{}.factor is {}, and max_position_embeddings / {} is {}", name,
                          ForeignJson::shown(factor), length, shape.rope_scaling_factor));
  shape.max_sequence = std::min(shape.max_sequence, shape.rope_original_sequence);
  const Json& magnitude = inside("attention_factor");
  shape.rope_magnitude = magnitude.is_null()
                             ? longrope_magnitude(shape)
                             : in.positive(magnitude, fmt::format("{}.attention_factor", name));
  for (auto [to, key] :
       {std::pair{&shape.rope_short_factors, "short_factor"}, {&shape.rope_long_factors, "long_factor"}}) {
    const Json& factors = inside(key);
    if (!factors.is_array() || std::ssize(factors) != shape.rotary_size() / 2)
      in.refuse(fmt::format("{}.{} is no list of {} numbers", name, key, shape.rotary_size() / 2));
    for (const Json& factor : factors) to->push_back(in.positive(factor, fmt::format("{}.{}", name, key)));
  }
}

/// rope_parameters (version 5), or rope_theta and rope_scaling (version 4).
void read_rope(const ForeignJson& in, const Family& family, ModelShape& shape) {
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
  shape.rope_theta = family.theta;
  if (!theta.is_null()) shape.rope_theta = in.positive(theta, "rope_theta");
  if (shape.rope_theta < 1) in.refuse("rope_theta is below 1");
  read_rotary_dim(in, family, inside, shape);
  if (scaling.is_null()) return;
  const Json& type = inside("rope_type").is_null() ? inside("type") : inside("rope_type");
  if (const Json& old = inside("type"); !old.is_null() && old != type)
    in.refuse(fmt::format("{} is of type {} and of type {}", name, ForeignJson::shown(old),
                          ForeignJson::shown(type)));
  if (type == "default") return;
  if (family.longrope != (type == "longrope"))
    in.refuse(fmt::format("{} is of type {}, which Holdfast does not compute of {}", name,
                          ForeignJson::shown(type), family.hf_class));
  if (family.longrope) return read_longrope(in, name, inside, shape);
  const auto known = type.is_string() ? choice_called<RopeType>(type.get<std::string>()) : std::nullopt;
  if (!known)
    in.refuse(fmt::format("{} is of type {}; Holdfast computes default, {}", name, ForeignJson::shown(type),
                          fmt::join(names_of<RopeType>(), ", ")));
  const auto number = [&](const char* key, double missing = 0) {
    if (missing > 0 && inside(key).is_null()) return missing;
    return in.positive(inside(key), fmt::format("{}.{}", name, key));
  };
  shape.rope_type = *known;
  shape.rope_scaling_factor = number("factor");
  if (shape.rope_scaling_factor < 1) in.refuse(fmt::format("{}.factor is below 1", name));
  if (*known == RopeType::llama3 || *known == RopeType::yarn) {
    const bool yarn = *known == RopeType::yarn;
    const char *const low = yarn ? "beta_slow" : "low_freq_factor",
                      *high = yarn ? "beta_fast" : "high_freq_factor";
    shape.rope_low_frequency = number(low, yarn ? 1 : 0);
    shape.rope_high_frequency = number(high, yarn ? 32 : 0);
    if (shape.rope_low_frequency >= shape.rope_high_frequency)
      in.refuse(fmt::format("{}.{} is not below {}", name, low, high));
    const double original = number("original_max_position_embeddings");
    if (original > std::numeric_limits<int>::max() || original != static_cast<int>(original))
      in.refuse(fmt::format("{}.original_max_position_embeddings is {}", name, original));
    shape.rope_original_sequence = static_cast<int>(original);
    if (yarn && inside("truncate") == false)
      in.refuse(fmt::format("{}.truncate is false, and the range of blending is rounded here", name));
    if (yarn)
      shape.rope_magnitude = number("attention_factor", magnitude_of(in, inside, shape.rope_scaling_factor));
  }
  if (shape.rope_scaling_factor > 1 || shape.rope_magnitude != 1) return;
  // Stretched by 1 is as it was, whatever the other numbers say.
  const ModelShape plain;
  shape.rope_type = plain.rope_type;
  shape.rope_low_frequency = plain.rope_low_frequency;
  shape.rope_high_frequency = plain.rope_high_frequency;
  shape.rope_original_sequence = plain.rope_original_sequence;
}

/// no_rope_layers says of each layer whether it turns queries and keys.
void read_nope(const ForeignJson& in, const Family& family, ModelShape& shape) {
  const Json& layers = in.get("no_rope_layers");
  if (!family.nope) {
    if (!layers.is_null()) in.refuse(fmt::format("no_rope_layers is set, and {} has none", family.hf_class));
    return;
  }
  if (layers.is_null()) {
    constexpr int usual = 4;
    shape.nope_every =
        in.get("no_rope_layer_interval").is_null() ? usual : in.size("no_rope_layer_interval", max_layers);
    if (shape.nope_every > shape.layers) shape.nope_every = 0;
    return;
  }
  if (!layers.is_array() || std::ssize(layers) < shape.layers)
    in.refuse("no_rope_layers is " + ForeignJson::shown(layers));
  const auto turns = [&](int layer) { return layers.at(as_size(layer)) != 0; };
  int first = 0;
  while (first < shape.layers && turns(first)) ++first;
  shape.nope_every = first < shape.layers ? first + 1 : 0;
  for (int layer = 0; layer < shape.layers; ++layer)
    if (turns(layer) != (shape.nope_every == 0 || (layer + 1) % shape.nope_every != 0))
      in.refuse(
          fmt::format("no_rope_layers has layer {} otherwise than every {}th", layer, shape.nope_every));
}

void read_sizes(const ForeignJson& in, const Family& family, ModelShape& shape) {
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

void read_biases(const ForeignJson& in, const Family& family, ModelShape& shape) {
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

void read_multipliers(const ForeignJson& in, const Family& family, ModelShape& shape) {
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

/// Just these keys: older versions take no others of Phi 3.
Json longrope_text(const ModelShape& m) {
  Json json = {
      {"type", "longrope"}, {"short_factor", m.rope_short_factors}, {"long_factor", m.rope_long_factors}};
  if (m.rope_magnitude != longrope_magnitude(m)) json["attention_factor"] = m.rope_magnitude;
  return json;
}

/// That transformers finds the same number again: it takes the whole part of the product.
double partial_rotary_factor(const ModelShape& m) {
  double part = static_cast<double>(m.rotary_size()) / m.head_size();
  while (static_cast<int>(part * m.head_size()) < m.rotary_size()) part = std::nextafter(part, 1.0);
  return part;
}

Json rope_scaling_text(const ModelShape& m) {
  Json json = {{"rope_type", name_of(m.rope_type)}, {"factor", m.rope_scaling_factor}};
  if (m.rope_type == RopeType::llama3)
    json["low_freq_factor"] = m.rope_low_frequency, json["high_freq_factor"] = m.rope_high_frequency;
  if (m.rope_type == RopeType::yarn)
    json["beta_slow"] = m.rope_low_frequency, json["beta_fast"] = m.rope_high_frequency,
    json["attention_factor"] = m.rope_magnitude;
  if (m.rope_type == RopeType::llama3 || m.rope_type == RopeType::yarn)
    json["original_max_position_embeddings"] = m.rope_original_sequence;
  return json;
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& path, const std::string& name) {
  const ForeignJson in(text, "the model of " + path);
  const Family& family = family_of(in);
  HfConfig out;
  ModelShape& shape = out.shape;
  shape.name = name;
  read_sizes(in, family, shape);
  refuse_what_we_lack(in);
  shape.max_sequence = max_sequence_within_windows(in, family, shape.max_sequence);
  read_rope(in, family, shape);
  read_nope(in, family, shape);
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
  const auto family = std::ranges::find_if(families, [&](const Family& f) { return computes(f, m); });
  if (family == families.end())
    throw Error(Exit::usage, fmt::format("no class of transformers computes the model {}", m.name),
                fmt::format("its biases, norms, positions and fused tensors do not go together in {}",
                            fmt::join(classes_of(families), ", ")),
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
  if (family->window == Window::if_used) json["use_sliding_window"] = false, json["sliding_window"] = nullptr;
  if (family->attention_bias) json["attention_bias"] = m.o_bias;
  if (family->mlp_bias) json["mlp_bias"] = m.mlp_bias;
  if (m.head_dim > 0 || !family->qkv_bias) json["head_dim"] = m.head_size();
  if (family->nope) {
    json["no_rope_layers"] = Json::array();
    for (int layer = 0; layer < m.layers; ++layer)
      json["no_rope_layers"].push_back(m.nope_every == 0 || (layer + 1) % m.nope_every != 0 ? 1 : 0);
  }
  if (family->multipliers) {
    json["embedding_multiplier"] = m.embedding_multiplier;
    json["attention_multiplier"] = m.attention_multiplier > 0
                                       ? m.attention_multiplier
                                       : 1 / std::sqrt(static_cast<double>(m.head_size()));
    json["residual_multiplier"] = m.residual_multiplier;
    json["logits_scaling"] = m.logits_scaling;
  }
  if (family->longrope) {
    json["partial_rotary_factor"] = partial_rotary_factor(m);
    const bool longrope = m.rope_type == RopeType::longrope;
    json["original_max_position_embeddings"] = longrope ? m.rope_original_sequence : m.max_sequence;
    if (longrope) {
      json["max_position_embeddings"] = std::llround(m.rope_scaling_factor * m.rope_original_sequence);
      json["rope_scaling"] = longrope_text(m);
    }
  } else if (m.rope_scaling_factor != 1 || m.rope_magnitude != 1)
    json["rope_scaling"] = rope_scaling_text(m);
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
