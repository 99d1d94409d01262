#pragma once
// What a Llama-shaped model consists of: every logical tensor by its Hugging Face name. Pure; the planner
// counts bytes with it, the trainer allocates with it, checkpoints name tensors by it.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/rope_type.hpp"

namespace holdfast::config {

/// The linear layers of a block, in the order of their names in names_of_projections.
enum class Projection { q, k, v, o, gate, up, down };
constexpr int projections = 7;
inline constexpr std::array names_of_projections = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                    "gate_proj", "up_proj", "down_proj"};

/// Low-rank adapters beside linear layers: y = x W^T + scale (x A^T) B^T, A: rank x in, B: out x rank (Hu et
/// al., "LoRA: Low-rank adaptation of large language models", 2021). They are trained, and nothing else is.
struct Adapters {
  int rank = 0;  ///< 0: none
  double scale = 1;
  double dropout = 0;  ///< probability with which an element of x is 0 on its way to A
  std::array<bool, projections> on = {};
  bool any() const { return rank > 0; }
  bool has(Projection p) const { return on[as_size(p)]; }
  bool operator==(const Adapters&) const = default;
};

/// configs/models/*.toml, table [model]; adapters are the run's
struct ModelShape {
  std::string name = "tiny";
  int vocabulary = 512;  ///< V
  int width = 64;        ///< d, hidden size
  int layers = 2;        ///< L
  int heads = 4;         ///< query heads
  int kv_heads = 2;      ///< key/value heads; divides heads (GQA)
  int head_dim = 0;      ///< size of a head; 0: width / heads
  int ffn = 176;         ///< f, inner size of SwiGLU
  int max_sequence = 512;
  double rope_theta = 10000.0;
  /// The stretching of rotary wavelengths (kernels::RopeScaling); factor 1: none
  RopeType rope_type = RopeType::llama3;
  double rope_scaling_factor = 1, rope_low_frequency = 1, rope_high_frequency = 4, rope_magnitude = 1;
  int rope_original_sequence = 8192;
  /// With longrope each frequency is divided by a factor of its own: by these for sequences up to the
  /// original length, and by the long ones beyond it, which are not computed but kept for exports.
  std::vector<double> rope_short_factors = {}, rope_long_factors = {};
  int rotary_dim = 0;  ///< elements of a head that are turned, the first ones; 0: all
  int nope_every = 0;  ///< the last of so many blocks turns nothing (SmolLM 3); 0: all turn
  int window =
      0;  ///< tokens that a token attends to, with itself, in blocks with a window; 0: no block has one
  int full_every = 0;  ///< the last of so many blocks has no window (OLMo 3); 0: all have it
  /// Base of the rotary frequencies in blocks with a window, where nothing stretches them; 0: as in all
  /// blocks
  double window_rope_theta = 0;
  double norm_epsilon = 1e-5;
  bool tied_embeddings = false;
  bool qkv_bias = false;       ///< q_proj, k_proj and v_proj have biases (Qwen 2)
  bool o_bias = false;         ///< o_proj has one
  bool mlp_bias = false;       ///< gate_proj, up_proj and down_proj have biases
  bool qk_norm = false;        ///< RMSNorm over each head of queries and of keys, before rope (Qwen 3)
  bool qk_norm_whole = false;  ///< such norms are over all heads of queries, and over all of keys (OLMo 2)
  bool norm_after = false;     ///< attention and MLP are normalised behind them, not before (OLMo 2)
  bool fused = false;  ///< q_proj, k_proj and v_proj are one tensor, and so are gate_proj and up_proj (Phi 3)
  /// Factors (Granite): of embeddings; of scores, 0: head_size^-1/2; of what attention and MLP add to the
  /// residual; and what logits are divided by.
  double embedding_multiplier = 1, attention_multiplier = 0, residual_multiplier = 1, logits_scaling = 1;
  Adapters adapters;
  int head_size() const { return head_dim > 0 ? head_dim : width / heads; }  ///< even
  int rotary_size() const { return rotary_dim > 0 ? rotary_dim : head_size(); }
  bool has_window(int layer) const {
    return window > 0 && (full_every == 0 || (layer + 1) % full_every != 0);
  }
  /// Elements of a token's queries, or of its keys, over all heads.
  std::int64_t query_width() const { return std::int64_t{heads} * head_size(); }
  std::int64_t key_width() const { return std::int64_t{kv_heads} * head_size(); }
  bool operator==(const ModelShape&) const = default;
};

/// matrix: a factor of a product. gain: of a norm. bias: added to each row of a product. adapter_a,
/// adapter_b: see Adapters.
enum class TensorKind { matrix, gain, bias, adapter_a, adapter_b };

/// Which part of the model a tensor is of. The linear layers of a block come first, in the order of their
/// numbers: one for each input, since what reads one input is one product.
enum class Role {
  qkv,
  o,
  gate_up,
  down,
  attention_norm,
  q_norm,
  k_norm,
  mlp_norm,
  embedding,
  final_norm,
  head
};
constexpr int linears_of_block = 4, roles_of_block = 8;
constexpr bool is_linear(Role role) { return static_cast<int>(role) < linears_of_block; }

/// A logical tensor: row-major rows x cols. A gain is one row; a bias has one row for each of its elements,
/// as the matrix it belongs to, so that what is packed by rows packs biases too. `unit` is the sharding unit
/// it is gathered with: 0 = embedding, 1..L = transformer blocks, L+1 = final norm and head.
struct TensorSpec {
  std::string name;
  std::int64_t rows = 1, cols = 1;
  int unit = 0;
  TensorKind kind = TensorKind::matrix;
  Role role = Role::embedding;
  std::int64_t elements() const { return rows * cols; }
};

/// The model's own tensors in canonical order (unit by unit): model.embed_tokens.weight,
/// model.layers.0.input_layernorm.weight, model.layers.0.self_attn.{q,k,v}_proj.weight,
/// model.layers.0.self_attn.{q,k,v}_proj.bias (biases where there are some),
/// model.layers.0.self_attn.{q,k}_norm.weight (where there are some), model.layers.0.self_attn.o_proj.weight,
/// model.layers.0.post_attention_layernorm.weight, model.layers.0.mlp.{gate,up,down}_proj.weight, ...,
/// model.norm.weight, lm_head.weight (absent when tied); or self_attn.qkv_proj and mlp.gate_up_proj, where
/// they are fused; or post_attention_layernorm and post_feedforward_layernorm behind o_proj and down_proj,
/// where norms come after.
std::vector<TensorSpec> base_tensors_of(const ModelShape& shape);
/// What is trained, in canonical order: all of the model, or with adapters these alone, as
/// model.layers.0.self_attn.q_proj.lora_A.weight; in each block all A of one input, then their B: q, k, v; o;
/// gate, up; down. What checkpoints hold and the optimizer updates.
std::vector<TensorSpec> tensors_of(const ModelShape& shape);
/// What is not: nothing, or with adapters all of the model.
std::vector<TensorSpec> frozen_tensors_of(const ModelShape& shape);

/// A tensor as it lies in memory: logical tensors of one unit, role and kind, concatenated along rows (q|k|v,
/// their biases, gate|up, and the A of adapters that read one input are one operand each; only the B of
/// adapters stand alone). The element index within a part is the stored index minus the sizes of the parts
/// before it. Slices (src/base/slice.hpp) cut stored tensors.
struct StoredTensor {
  int first_part = 0, parts = 1;  ///< indices into tensors_of(), or frozen_tensors_of()
  std::int64_t rows = 1, cols = 1;
  int unit = 0;
  TensorKind kind = TensorKind::matrix;
  Role role = Role::embedding;
  bool frozen = false;
  bool linear = false;  ///< weight of a block's linear layer
  std::int64_t elements() const { return rows * cols; }
};

/// Unit by unit; in a block the model's own, then the adapters.
std::vector<StoredTensor> stored_tensors_of(const ModelShape& shape);
/// Of the model, without adapters; of tensors_of().
std::int64_t parameters_of(const ModelShape& shape);
std::int64_t trained_parameters_of(const ModelShape& shape);

}  // namespace holdfast::config
