#pragma once
// Small models with values that matter, in both forms that the tests compare.
#include "src/tools/infer/decoder.hpp"
#include "tests/model/stand.hpp"

namespace holdfast::testing {

/// The weights of a whole model, as `holdfast generate` holds them.
inline infer::Parameters parameters_of(const MemoryWeights& from, const config::ModelShape& shape,
                                       DType type) {
  const auto values = by_tensor(from, from.values);
  infer::Parameters out(shape, type);
  out.fill(from.specs, [&](const checkpoint::State& state) {
    for (const auto& piece : state.pieces) {
      const auto& name = state.tensors[piece.tensor].name;
      const auto spec = std::ranges::find(from.specs, name.substr(6), &config::TensorSpec::name);
      const auto& tensor = values[spec - from.specs.begin()];
      std::copy_n(tensor.begin() + piece.first, piece.count, static_cast<float*>(piece.data));
    }
  });
  return out;
}

struct Model {
  config::ModelShape shape;
  MemoryWeights values;
  infer::Parameters parameters;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);

  explicit Model(const config::ModelShape& s, DType type = DType::fp32)
      : shape(s), values(lively(s, type)), parameters(parameters_of(values, s, type)) {}
};

inline Tokens text_of_length(int length, int vocabulary, int key) {
  Tokens out;
  for (int t = 0; t < length; ++t) out.push_back((t * t + key * t + key) % vocabulary);
  return out;
}

}  // namespace holdfast::testing
