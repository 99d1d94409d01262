#include "src/config/hf_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

namespace holdfast::config {
namespace {

// By modeling_NAME.py and configuration_NAME.py of transformers 4 and 5. A shape is exported as the first
// class that computes it.
constexpr std::array families = {
    HfFamily{.hf_class = "LlamaForCausalLM",
             .model_type = "llama",
             .attention_bias = true,
             .mlp_bias = true,
             .any_kv_heads = true},
    HfFamily{.hf_class = "Qwen2ForCausalLM",
             .model_type = "qwen2",
             .window = HfWindow::if_used,
             .layer_types = true,
             .qkv_bias = true},
    HfFamily{.hf_class = "Qwen3ForCausalLM",
             .model_type = "qwen3",
             .window = HfWindow::if_used,
             .layer_types = true,
             .qk_norm = true,
             .attention_bias = true,
             .head_dim = 128},
    HfFamily{.hf_class = "MistralForCausalLM",
             .model_type = "mistral",
             .window = HfWindow::all,
             .missing_window = 4096},
    HfFamily{.hf_class = "SmolLM3ForCausalLM",
             .model_type = "smollm3",
             .window = HfWindow::if_used,
             .layer_types = true,
             .attention_bias = true,
             .mlp_bias = true,
             .nope = true,
             .theta = 2e6,
             .tied = true},
    HfFamily{.hf_class = "Phi3ForCausalLM",
             .model_type = "phi3",
             .window = HfWindow::all,
             .any_kv_heads = true,
             .fused = true,
             .longrope = true,
             .epsilon = 1e-5},
    HfFamily{.hf_class = "Olmo2ForCausalLM",
             .model_type = "olmo2",
             .qk_norm = true,
             .attention_bias = true,
             .any_kv_heads = true,
             .qk_norm_whole = true,
             .norm_after = true,
             .epsilon = 1e-5},
    HfFamily{.hf_class = "Olmo3ForCausalLM",
             .model_type = "olmo3",
             .window = HfWindow::all,
             .missing_window = 4096,
             .full_every = 4,
             .layer_types = true,
             .window_rope = true,
             .qk_norm = true,
             .attention_bias = true,
             .any_kv_heads = true,
             .qk_norm_whole = true,
             .norm_after = true,
             .theta = 500000,
             .epsilon = 1e-5},
    HfFamily{.hf_class = "GraniteForCausalLM",
             .model_type = "granite",
             .attention_bias = true,
             .mlp_bias = true,
             .any_kv_heads = true,
             .multipliers = true},
};

bool has_multipliers(const ModelShape& m) {
  return m.embedding_multiplier != 1 || m.attention_multiplier != 0 || m.residual_multiplier != 1 ||
         m.logits_scaling != 1;
}

/// It computes models of this shape.
bool computes(const HfFamily& family, const ModelShape& m) {
  const bool attention_biases =
      family.attention_bias ? m.qkv_bias == m.o_bias : m.qkv_bias == family.qkv_bias && !m.o_bias;
  return attention_biases && (family.mlp_bias || !m.mlp_bias) && m.qk_norm == family.qk_norm &&
         m.qk_norm_whole == family.qk_norm_whole && m.norm_after == family.norm_after &&
         (family.nope || m.nope_every == 0) &&
         (m.window == 0 || (family.window != HfWindow::none && (family.layer_types || m.full_every == 0))) &&
         family.window_rope == (m.window_rope_theta > 0) && (family.multipliers || !has_multipliers(m)) &&
         m.fused == family.fused &&
         (family.longrope ? m.rope_type == RopeType::longrope || m.rope_scaling_factor == 1
                          : m.rope_type != RopeType::longrope && m.rotary_dim == 0);
}

}  // namespace

std::vector<std::string_view> hf_classes() {
  std::vector<std::string_view> out;
  for (const HfFamily& family : families) out.push_back(family.hf_class);
  return out;
}

const HfFamily* hf_family_of(const ModelShape& shape) {
  const auto found =
      std::ranges::find_if(families, [&](const HfFamily& family) { return computes(family, shape); });
  return found == families.end() ? nullptr : &*found;
}

const HfFamily& hf_family_of(const ForeignJson& in) {
  const auto look = [](std::string_view HfFamily::*key, const std::string& name) -> const HfFamily* {
    const auto found = std::ranges::find(families, name, key);
    return found == families.end() ? nullptr : &*found;
  };
  const std::string type = in.text("model_type");
  const nlohmann::json& architectures = in.get("architectures");
  const HfFamily* family = look(&HfFamily::model_type, type);
  std::string name = type.empty() ? "it names no architecture" : "model_type " + quoted(type);
  if (!architectures.is_null()) {
    const bool one =
        architectures.is_array() && architectures.size() == 1 && architectures.front().is_string();
    if (!one) in.refuse("architectures is " + ForeignJson::shown(architectures) + ", not a list of one name");
    const auto architecture = architectures.front().get<std::string>();
    const HfFamily* const named = look(&HfFamily::hf_class, architecture);
    if (named && family && named != family)
      in.refuse(fmt::format("architecture {} and model_type {} contradict each other", architecture, type));
    family = named;
    name = "architecture " + quoted(architecture);
  }
  if (!family)
    in.refuse(name + fmt::format(" is none that Holdfast computes: {}", fmt::join(hf_classes(), ", ")));
  return *family;
}

}  // namespace holdfast::config
