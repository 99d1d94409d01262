#include "src/config/model_shape.hpp"

#include <algorithm>
#include <utility>

#include "src/base/as_size.hpp"

namespace holdfast::config {

std::vector<TensorSpec> base_tensors_of(const ModelShape& m) {
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

namespace {

/// Linear layers that read one input, and so have their A in one operand.
constexpr std::array input_groups = {std::array{Projection::q, Projection::k, Projection::v},
                                     std::array{Projection::o, Projection::o, Projection::o},
                                     std::array{Projection::gate, Projection::up, Projection::up},
                                     std::array{Projection::down, Projection::down, Projection::down}};

/// Rows and columns of a linear layer's weight.
std::pair<std::int64_t, std::int64_t> size_of(const ModelShape& m, Projection p) {
  const std::int64_t d = m.width, kv = static_cast<std::int64_t>(m.kv_heads) * m.head_size(), f = m.ffn;
  switch (p) {
    case Projection::q:
    case Projection::o:
      return {d, d};
    case Projection::k:
    case Projection::v:
      return {kv, d};
    case Projection::gate:
    case Projection::up:
      return {f, d};
    case Projection::down:
      break;
  }
  return {d, f};
}

std::vector<TensorSpec> adapters_of(const ModelShape& m) {
  std::vector<TensorSpec> out;
  for (int layer = 0; layer < m.layers; ++layer)
    for (const auto& group : input_groups)
      for (const TensorKind kind : {TensorKind::adapter_a, TensorKind::adapter_b})
        for (std::size_t i = 0; i < group.size(); ++i) {
          const Projection p = group[i];
          if (!m.adapters.has(p) || (i > 0 && p == group[i - 1])) continue;
          const auto [rows, cols] = size_of(m, p);
          const bool a = kind == TensorKind::adapter_a;
          const std::string name =
              "model.layers." + std::to_string(layer) + (p <= Projection::o ? ".self_attn." : ".mlp.") +
              names_of_projections[as_size(p)] + (a ? ".lora_A.weight" : ".lora_B.weight");
          out.push_back({name, a ? m.adapters.rank : rows, a ? cols : m.adapters.rank, layer + 1, kind});
        }
  return out;
}

/// Tensors of one list as they lie in memory.
std::vector<StoredTensor> pack(const std::vector<TensorSpec>& tensors, bool frozen) {
  const auto packed_with_previous = [&](std::size_t i) {
    const std::string& name = tensors[i].name;
    if (tensors[i].kind == TensorKind::adapter_b) return false;
    if (tensors[i].kind == TensorKind::adapter_a)
      return i > 0 && tensors[i - 1].kind == TensorKind::adapter_a && tensors[i - 1].unit == tensors[i].unit;
    return name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight") ||
           name.ends_with("k_proj.bias") || name.ends_with("v_proj.bias") || name.ends_with("up_proj.weight");
  };
  std::vector<StoredTensor> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& t = tensors[i];
    if (packed_with_previous(i)) {
      out.back().parts += 1;
      out.back().rows += t.rows;
    } else {
      const bool linear = t.kind == TensorKind::matrix && t.name.starts_with("model.layers.");
      out.push_back({static_cast<int>(i), 1, t.rows, t.cols, t.unit, frozen, linear});
    }
  }
  return out;
}

std::int64_t elements_of(const std::vector<TensorSpec>& tensors) {
  std::int64_t sum = 0;
  for (const auto& t : tensors) sum += t.elements();
  return sum;
}

}  // namespace

std::vector<TensorSpec> tensors_of(const ModelShape& shape) {
  return shape.adapters.any() ? adapters_of(shape) : base_tensors_of(shape);
}

std::vector<TensorSpec> frozen_tensors_of(const ModelShape& shape) {
  return shape.adapters.any() ? base_tensors_of(shape) : std::vector<TensorSpec>{};
}

std::vector<StoredTensor> stored_tensors_of(const ModelShape& shape) {
  auto out = pack(base_tensors_of(shape), shape.adapters.any());
  if (!shape.adapters.any()) return out;
  const auto adapters = pack(adapters_of(shape), false);
  out.insert(out.end(), adapters.begin(), adapters.end());
  std::ranges::stable_sort(out, {}, &StoredTensor::unit);
  return out;
}

std::int64_t parameters_of(const ModelShape& shape) { return elements_of(base_tensors_of(shape)); }
std::int64_t trained_parameters_of(const ModelShape& shape) { return elements_of(tensors_of(shape)); }

}  // namespace holdfast::config
