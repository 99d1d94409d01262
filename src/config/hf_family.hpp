#pragma once
// The classes of transformers that Holdfast knows: one row each, and which of them a config.json names or a
// shape needs.
#include <string_view>
#include <vector>

#include "src/config/foreign_json.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::config {

/// Which layers of a class have a sliding window, where layer_types does not say so. if_used: of a class
/// whose layer_types say it, others are not read.
enum class HfWindow { none, all, if_used };

/// What a class of transformers computes, as far as its config.json does not say it: the defaults of its
/// configuration, and what is written into its code.
struct HfFamily {
  std::string_view hf_class, model_type;
  HfWindow window = HfWindow::none;
  int missing_window = 0;                  ///< where the key is missing; 0: none
  int full_every = 0;                      ///< where layer_types are missing: as ModelShape::full_every
  bool layer_types = false;                ///< has the key
  bool window_rope = false;                ///< nothing is stretched in layers with a window
  bool qkv_bias = false, qk_norm = false;  ///< always
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
std::vector<std::string_view> hf_classes();

/// By architectures and model_type. Throws Error (usage).
const HfFamily& hf_family_of(const ForeignJson& in);
/// The first class that computes models of this shape; null: none does.
const HfFamily* hf_family_of(const ModelShape& shape);

}  // namespace holdfast::config
