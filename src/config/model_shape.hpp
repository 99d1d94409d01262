#pragma once
// What a Llama-2-shaped model consists of: every logical tensor by its Hugging Face name. Pure; the planner
// counts bytes with it, the trainer allocates with it, checkpoints name tensors by it.
#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::config {

/// configs/models/*.toml, table [model]
struct ModelShape {
  std::string name = "tiny";
  int vocabulary = 512;  ///< V
  int width = 64;        ///< d, hidden size
  int layers = 2;        ///< L
  int heads = 4;         ///< query heads; head size = width / heads, even
  int kv_heads = 2;      ///< key/value heads; divides heads (GQA)
  int ffn = 176;         ///< f, inner size of SwiGLU
  int max_sequence = 512;
  double rope_theta = 10000.0;
  double norm_epsilon = 1e-5;
  bool tied_embeddings = false;
  int head_size() const { return width / heads; }
  bool operator==(const ModelShape&) const = default;
};

/// A logical tensor: row-major rows x cols (a vector has rows = 1). `unit` is the sharding unit it is
/// gathered with: 0 = embedding, 1..L = transformer blocks, L+1 = final norm and head.
struct TensorSpec {
  std::string name;
  std::int64_t rows = 1, cols = 1;
  int unit = 0;
  bool decay = true;  ///< weight decay applies (matrices yes, norm gains no)
  std::int64_t elements() const { return rows * cols; }
};

/// All tensors in canonical order (unit by unit): model.embed_tokens.weight,
/// model.layers.0.input_layernorm.weight, model.layers.0.self_attn.{q,k,v,o}_proj.weight,
/// model.layers.0.post_attention_layernorm.weight, model.layers.0.mlp.{gate,up,down}_proj.weight, ...,
/// model.norm.weight, lm_head.weight (absent when tied).
std::vector<TensorSpec> tensors_of(const ModelShape& shape);
/// A tensor as it lies in memory: logical tensors of one unit, concatenated along rows (q|k|v and gate|up are
/// one GEMM operand each; every other tensor stands alone). The element index within a part is the stored
/// index minus the sizes of the parts before it. Slices (src/base/slice.hpp) cut stored tensors.
struct StoredTensor {
  int first_part = 0, parts = 1;  ///< indices into tensors_of()
  std::int64_t rows = 1, cols = 1;
  int unit = 0;
  std::int64_t elements() const { return rows * cols; }
};

std::vector<StoredTensor> stored_tensors_of(const ModelShape& shape);
std::int64_t parameters_of(const ModelShape& shape);

}  // namespace holdfast::config
