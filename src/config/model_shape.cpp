#include "src/config/model_shape.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/config/architecture.hpp"

namespace holdfast::config {

namespace {

/// Calls see(name of the block, unit, operation) for all operations of all blocks.
template <class See>
void for_each_op(const ModelShape& m, const See& see) {
  for (int layer = 0; layer < m.layers; ++layer)
    for (const BlockOp& op : block_ops(m, layer))
      see("model.layers." + std::to_string(layer) + ".", layer + 1, op);
}

std::vector<TensorSpec> adapters_of(const ModelShape& m) {
  std::vector<TensorSpec> out;
  for_each_op(m, [&](const std::string& at, int unit, const BlockOp& op) {
    if (op.kind != BlockOp::Kind::linear) return;
    const std::int64_t cols = width_of(m, op.in), rank = m.adapters.rank;
    const auto parts = parts_of(m, op.role);
    for (const auto& [p, module, rows] : parts)
      if (m.adapters.has(p))
        out.push_back({at + module + ".lora_A.weight", rank, cols, unit, TensorKind::adapter_a, op.role});
    for (const auto& [p, module, rows] : parts)
      if (m.adapters.has(p))
        out.push_back({at + module + ".lora_B.weight", rows, rank, unit, TensorKind::adapter_b, op.role});
  });
  return out;
}

/// Tensors of one list as they lie in memory.
std::vector<StoredTensor> pack(const std::vector<TensorSpec>& tensors, bool frozen) {
  std::vector<StoredTensor> out;
  for (int i = 0; i < std::ssize(tensors); ++i) {
    const TensorSpec& t = tensors[i];
    const bool joins = !out.empty() && out.back().unit == t.unit && out.back().role == t.role &&
                       out.back().kind == t.kind && t.kind != TensorKind::adapter_b;
    if (joins) {
      out.back().parts += 1;
      out.back().rows += t.rows;
    } else {
      const bool linear = t.kind == TensorKind::matrix && is_linear(t.role);
      out.push_back({i, 1, t.rows, t.cols, t.unit, t.kind, t.role, frozen, linear});
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

std::vector<TensorSpec> base_tensors_of(const ModelShape& m) {
  using enum TensorKind;
  const std::int64_t d = m.width, v = m.vocabulary;
  std::vector<TensorSpec> out = {{"model.embed_tokens.weight", v, d, 0, matrix, Role::embedding}};
  for_each_op(m, [&](const std::string& at, int unit, const BlockOp& op) {
    for (TensorSpec& tensor : tensors_of_op(m, op)) {
      tensor.name.insert(0, at);
      tensor.unit = unit;
      out.push_back(std::move(tensor));
    }
  });
  out.push_back({"model.norm.weight", 1, d, m.layers + 1, gain, Role::final_norm});
  if (!m.tied_embeddings) out.push_back({"lm_head.weight", v, d, m.layers + 1, matrix, Role::head});
  return out;
}

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
