#include "src/config/model_shape.hpp"

namespace holdfast::config {

std::vector<TensorSpec> tensors_of(const ModelShape& m) {
  using enum TensorKind;
  std::vector<TensorSpec> out;
  const std::int64_t d = m.width, kv = static_cast<std::int64_t>(m.kv_heads) * m.head_size(), f = m.ffn,
                     v = m.vocabulary;
  out.push_back({"model.embed_tokens.weight", v, d, 0, matrix});
  for (int layer = 0; layer < m.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    const int unit = layer + 1;
    out.push_back({at + "input_layernorm.weight", 1, d, unit, gain});
    out.push_back({at + "self_attn.q_proj.weight", d, d, unit, matrix});
    out.push_back({at + "self_attn.k_proj.weight", kv, d, unit, matrix});
    out.push_back({at + "self_attn.v_proj.weight", kv, d, unit, matrix});
    if (m.qkv_bias) {
      out.push_back({at + "self_attn.q_proj.bias", d, 1, unit, bias});
      out.push_back({at + "self_attn.k_proj.bias", kv, 1, unit, bias});
      out.push_back({at + "self_attn.v_proj.bias", kv, 1, unit, bias});
    }
    out.push_back({at + "self_attn.o_proj.weight", d, d, unit, matrix});
    out.push_back({at + "post_attention_layernorm.weight", 1, d, unit, gain});
    out.push_back({at + "mlp.gate_proj.weight", f, d, unit, matrix});
    out.push_back({at + "mlp.up_proj.weight", f, d, unit, matrix});
    out.push_back({at + "mlp.down_proj.weight", d, f, unit, matrix});
  }
  const int last = m.layers + 1;
  out.push_back({"model.norm.weight", 1, d, last, gain});
  if (!m.tied_embeddings) out.push_back({"lm_head.weight", v, d, last, matrix});
  return out;
}

std::vector<StoredTensor> stored_tensors_of(const ModelShape& shape) {
  const auto tensors = tensors_of(shape);
  auto packed_with_previous = [](const std::string& name) {
    return name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight") ||
           name.ends_with("k_proj.bias") || name.ends_with("v_proj.bias") || name.ends_with("up_proj.weight");
  };
  std::vector<StoredTensor> out;
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    const auto& t = tensors[static_cast<std::size_t>(i)];
    if (packed_with_previous(t.name)) {
      out.back().parts += 1;
      out.back().rows += t.rows;
    } else {
      out.push_back({i, 1, t.rows, t.cols, t.unit});
    }
  }
  return out;
}

std::int64_t parameters_of(const ModelShape& shape) {
  std::int64_t sum = 0;
  for (const auto& t : tensors_of(shape)) sum += t.elements();
  return sum;
}

}  // namespace holdfast::config
