#include "src/model/init.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/digest.hpp"
#include "src/model/normals.hpp"
#include "src/tensor/philox.hpp"

namespace holdfast::model {

namespace {

constexpr double deviation = 0.02;

double deviation_of(const config::ModelShape& shape, config::Role role) {
  const bool output = role == config::Role::o || role == config::Role::down;
  return output ? deviation / std::sqrt(2.0 * shape.layers) : deviation;
}

/// Elements first, first + 1, ...; a block of normals() has four.
void fill_normals(std::uint64_t first, std::uint64_t name, std::uint64_t seed, double scale,
                  std::span<float> out) {
  while (!out.empty()) {
    const std::size_t inside = first % 4;
    std::size_t count = out.size() / 4 * 4;
    if (inside == 0 && count > 0) {
      normals(first / 4, name, seed, scale, out.first(count));
    } else {
      std::array<float, 4> block;
      normals(first / 4, name, seed, scale, block);
      count = std::min(block.size() - inside, out.size());
      std::copy_n(block.data() + inside, count, out.data());
    }
    out = out.subspan(count);
    first += count;
  }
}

/// Uniform in +-1 / sqrt(in), as a linear layer's weight is elsewhere (He et al., "Delving deep into
/// rectifiers", 2015, with a = sqrt(5)).
void initial_adapter(const config::TensorSpec& tensor, std::uint64_t seed, std::int64_t first,
                     std::span<float> out) {
  const std::uint64_t name = hash_name(tensor.name.data(), tensor.name.size());
  const double bound = 1 / std::sqrt(static_cast<double>(tensor.cols));
  const auto half = [](std::uint64_t x, int shift) { return static_cast<std::uint32_t>(x >> shift); };
  for (std::size_t k = 0; k < out.size(); ++k) {
    const std::uint64_t element = static_cast<std::uint64_t>(first) + k, block = element / 4;
    const auto bits = tensor::philox({half(block, 0), half(block, 32), half(name, 0), half(name, 32)},
                                     {half(seed, 0), half(seed, 32)});
    out[k] = static_cast<float>(bound * (2 * (bits[element % 4] + 0.5) * 0x1p-32 - 1));
  }
}

}  // namespace

void initial_weights(const config::ModelShape& shape, const config::TensorSpec& tensor, std::uint64_t seed,
                     std::int64_t first, std::span<float> out) {
  using enum config::TensorKind;
  if (tensor.kind == adapter_a) return initial_adapter(tensor, seed, first, out);
  if (tensor.kind != matrix) {
    const float value = tensor.kind == gain ? 1.0f : 0.0f;
    for (float& x : out) x = value;
    return;
  }
  const std::uint64_t name = hash_name(tensor.name.data(), tensor.name.size());
  const double scale = deviation_of(shape, tensor.role);
  constexpr std::size_t part = 1 << 16;
  const std::size_t parts = (out.size() + part - 1) / part;
#ifndef __SANITIZE_THREAD__  // it does not see how OpenMP's runtime orders its threads
#pragma omp parallel for schedule(static)
#endif
  for (std::size_t p = 0; p < parts; ++p) {
    const std::size_t at = p * part;
    fill_normals(static_cast<std::uint64_t>(first) + at, name, seed, scale,
                 out.subspan(at, std::min(part, out.size() - at)));
  }
}

}  // namespace holdfast::model
