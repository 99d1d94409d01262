// Positions in a config.json of transformers, read in this order: sliding windows, which may shorten the
// longest sequence; rotary embedding, in the spellings of version 4 (rope_theta, rope_scaling) and 5
// (rope_parameters); what is otherwise in layers with a window; and layers without rotary embedding. What
// Holdfast does not compute is refused by its key. write_positions() writes what both versions read.
#include "src/config/hf_positions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/config/choices.hpp"

namespace holdfast::config {
namespace {

using Json = nlohmann::json;

constexpr int most_layers = 4096;

/// Whether each layer has a sliding window; empty: none has one.
std::vector<bool> sliding_layers(const ForeignJson& in, const HfFamily& family, int layers) {
  const Json& types = in.get("layer_types");
  std::vector<bool> slides(as_size(layers),
                           family.window == HfWindow::all || in.flag("use_sliding_window", false));
  if (family.full_every > 0)
    for (int i = family.full_every - 1; i < layers; i += family.full_every) slides[as_size(i)] = false;
  if (!types.is_null()) {
    if (!types.is_array() || std::ssize(types) < layers)
      in.refuse(fmt::format("layer_types is no list of {} names", layers));
    for (int i = 0; i < layers; ++i) {
      const Json& type = types.at(as_size(i));
      slides[as_size(i)] = type == "sliding_attention";
      if (!slides[as_size(i)] && type != "full_attention")
        in.refuse("layer_types has " + ForeignJson::shown(type));
    }
  }
  return std::ranges::count(slides, true) > 0 ? slides : std::vector<bool>{};
}

/// The number of which the last layer has no window, as ModelShape has it; nothing: they follow another rule.
std::optional<int> full_every_of(const std::vector<bool>& slides) {
  const auto first = std::ranges::find(slides, false) - slides.begin();
  if (first == std::ssize(slides)) return 0;
  for (std::size_t i = 0; i < slides.size(); ++i)
    if (slides[i] == ((i + 1) % as_size(first + 1) == 0)) return std::nullopt;
  return static_cast<int>(first + 1);
}

/// A window hides nothing from sequences that are no longer than it: where layers have it by another rule, or
/// only transformers' defaults say which ones do, longer ones are not taken.
void read_windows(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  const Json& window = in.get("sliding_window");
  const auto slides = sliding_layers(in, family, shape.layers);
  const bool missing = family.missing_window > 0 && window.is_null() && !in.has("sliding_window");
  if (slides.empty()) return;
  if (window.is_null() && !missing) {
    if (family.window_rope) in.refuse("sliding_window is null, and layer_types has layers that slide");
    return;
  }
  const Json width = missing ? Json(family.missing_window) : window;
  if (!width.is_number_integer() || width < 1 || width > std::numeric_limits<int>::max())
    in.refuse(fmt::format("sliding_window is {}", ForeignJson::shown(width)));
  const bool said = family.window == HfWindow::all ||
                    (in.flag("use_sliding_window", false) && !in.get("layer_types").is_null());
  const auto full_every = full_every_of(slides);
  if (family.window_rope && !full_every) in.refuse("layer_types has full_attention otherwise than every nth");
  if (full_every && said && (width < shape.max_sequence || family.window_rope)) {
    shape.window = width.get<int>();
    shape.full_every = *full_every;
  } else {
    shape.max_sequence = std::min(width.get<int>(), shape.max_sequence);
  }
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
void read_rotary_dim(const ForeignJson& in, const HfFamily& family, const Inside& inside, ModelShape& shape) {
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

/// What rope_parameters say of one kind of layers; null: they are those of all layers.
const Json& rope_of_layers(const Json& parameters, const char* kind) {
  static const Json none;
  const auto found = parameters.is_object() ? parameters.find(kind) : parameters.end();
  return found == parameters.end() ? none : *found;
}

/// Where nothing is stretched in layers with a window.
void read_window_rope(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  if (!family.window_rope || shape.window == 0) return;
  const Json& local = rope_of_layers(in.get("rope_parameters"), "sliding_attention");
  shape.window_rope_theta = shape.rope_theta;
  if (local.is_null()) return;
  const char* const name = "rope_parameters.sliding_attention";
  if (const Json type = local.value("rope_type", Json("default")); type != "default")
    in.refuse(fmt::format("{} is of type {}, and Holdfast stretches nothing there", name,
                          ForeignJson::shown(type)));
  if (local.contains("rope_theta"))
    shape.window_rope_theta = in.positive(local.at("rope_theta"), fmt::format("{}.rope_theta", name));
}

/// rope_parameters (version 5), of all layers or of those without a window; or rope_theta and rope_scaling
/// (version 4).
void read_rope(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  const Json& full = rope_of_layers(in.get("rope_parameters"), "full_attention");
  if (!full.is_null() && !family.window_rope)
    in.refuse(
        fmt::format("rope_parameters are of kinds of layers, which all turn alike in {}", family.hf_class));
  const Json& parameters = full.is_null() ? in.get("rope_parameters") : full;
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
  if (family.window_rope && full.is_null() && !parameters.is_null())
    in.refuse("rope_parameters stretch, and do not say that layers with a window are not meant");
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
void read_nope(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  const Json& layers = in.get("no_rope_layers");
  if (!family.nope) {
    if (!layers.is_null()) in.refuse(fmt::format("no_rope_layers is set, and {} has none", family.hf_class));
    return;
  }
  if (layers.is_null()) {
    constexpr int usual = 4;
    shape.nope_every =
        in.get("no_rope_layer_interval").is_null() ? usual : in.size("no_rope_layer_interval", most_layers);
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

void read_positions(const ForeignJson& in, const HfFamily& family, ModelShape& shape) {
  read_windows(in, family, shape);
  read_rope(in, family, shape);
  read_window_rope(in, family, shape);
  read_nope(in, family, shape);
}

void write_positions(Json& json, const HfFamily& family, const ModelShape& m) {
  if (family.window != HfWindow::none) json["sliding_window"] = m.window > 0 ? Json(m.window) : Json(nullptr);
  if (family.window == HfWindow::if_used) json["use_sliding_window"] = m.window > 0;
  if (family.layer_types && m.window > 0) {
    json["layer_types"] = Json::array();
    for (int layer = 0; layer < m.layers; ++layer)
      json["layer_types"].push_back(m.has_window(layer) ? "sliding_attention" : "full_attention");
  }
  if (family.nope) {
    json["no_rope_layers"] = Json::array();
    for (int layer = 0; layer < m.layers; ++layer)
      json["no_rope_layers"].push_back(m.nope_every == 0 || (layer + 1) % m.nope_every != 0 ? 1 : 0);
  }
  if (family.longrope) {
    json["partial_rotary_factor"] = partial_rotary_factor(m);
    const bool longrope = m.rope_type == RopeType::longrope;
    json["original_max_position_embeddings"] = longrope ? m.rope_original_sequence : m.max_sequence;
    if (longrope) {
      json["max_position_embeddings"] = std::llround(m.rope_scaling_factor * m.rope_original_sequence);
      json["rope_scaling"] = longrope_text(m);
    }
  } else if (m.rope_scaling_factor != 1 || m.rope_magnitude != 1)
    json["rope_scaling"] = rope_scaling_text(m);
  if (family.window_rope) {  // beside the keys of version 4
    Json full = json["rope_scaling"].is_null() ? Json{{"rope_type", "default"}} : json["rope_scaling"];
    full["rope_theta"] = m.rope_theta;
    json["rope_parameters"] = {
        {"full_attention", std::move(full)},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", m.window_rope_theta}}}};
  }
}

}  // namespace holdfast::config
