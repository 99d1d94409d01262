#include "src/train/engine/probe.hpp"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/dtype.hpp"
#include "src/tensor/mat.hpp"

namespace holdfast::train {
namespace {

using kernels::Write;
using tensor::DType;
using tensor::Mat;

/// A matrix with memory of its own; what it ends as is digested.
class Probed {
 public:
  Probed(DType type, std::int64_t rows, std::int64_t cols)
      : bytes_(as_size(rows * cols * tensor::bytes_of(type)) + alignment),
        mat_(tensor::dense(aligned(), type, rows, cols)) {}
  Probed(Probed&&) = default;
  Mat mat() { return mat_; }
  float* floats() { return reinterpret_cast<float*>(mat_.data); }
  std::uint64_t digest() const { return digest_part(0, mat_.data, mat_.type, mat_.rows * mat_.cols); }

 private:
  static constexpr std::size_t alignment = 64;
  void* aligned() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (alignment - at % alignment) % alignment;
  }
  std::vector<std::byte> bytes_;
  Mat mat_;
};

class Probe {
 public:
  Probe(kernels::Kernels& kernels, DType type) : kernels_(kernels), type_(type) {}
  std::uint64_t sum() const { return sum_; }

  /// Larger than a tile, and a multiple of none.
  void products(std::uint64_t seed) {
    constexpr std::int64_t m = 300, n = 270, k = 520;
    Probed a = filled(m, k, seed), b = filled(n, k, seed + 1), y(type_, m, n);
    kernels_.matmul(stream_, y.mat(), a.mat(), false, b.mat(), true, Write::replace);
    Probed d_weight(DType::fp32, n, k);
    kernels_.matmul(stream_, d_weight.mat(), y.mat(), true, a.mat(), false, Write::replace);
    kernels_.matmul(stream_, d_weight.mat(), y.mat(), true, a.mat(), false, Write::add);
    take(y), take(d_weight);
  }

  void attention(std::uint64_t seed) {
    constexpr int heads = 4, kv_heads = 2, head_size = 64, sequence = 160;
    constexpr std::int64_t packed = (heads + 2 * kv_heads) * head_size, width = heads * head_size;
    Probed qkv = filled(sequence, packed, seed), out(type_, sequence, width),
           d_out = filled(sequence, width, seed + 1), d_qkv(type_, sequence, packed),
           log_sum(DType::fp32, heads, sequence);
    kernels::Attention a;
    a.qkv = qkv.mat();
    a.out = out.mat();
    a.log_sum = log_sum.floats();
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.head_size = head_size;
    a.sequence = sequence;
    Probed workspace(DType::fp32, 1, kernels_.workspace(a) / static_cast<std::int64_t>(sizeof(float)) + 1);
    a.workspace = reinterpret_cast<std::byte*>(workspace.floats());
    kernels_.attention(stream_, a);
    kernels_.attention_backward(stream_, a, {d_out.mat(), d_qkv.mat()});
    take(out), take(log_sum), take(d_qkv);
  }

  void pointwise(std::uint64_t seed) {
    constexpr std::int64_t tokens = 130, width = 264;
    Probed x = filled(tokens, width, seed), gain = filled(1, width, seed + 1), normed(type_, tokens, width),
           inverse_rms(DType::fp32, 1, tokens), d_sum(type_, tokens, width), d_gain(DType::fp32, 1, width),
           gate_up = filled(tokens, 2 * width, seed + 2), out(type_, tokens, width),
           d_gate_up(type_, tokens, 2 * width);
    kernels::Norm norm;
    norm.residual = x.mat();
    norm.out = normed.mat();
    norm.gain = gain.mat();
    norm.inverse_rms = inverse_rms.floats();
    kernels_.norm(stream_, norm);
    kernels_.norm_backward(stream_, {x.mat(), normed.mat(), gain.mat(), inverse_rms.floats(), d_sum.mat(),
                                     d_gain.floats(), Write::replace});
    kernels_.swiglu(stream_, out.mat(), gate_up.mat());
    kernels_.swiglu_backward(stream_, d_gate_up.mat(), normed.mat(), gate_up.mat());
    take(normed), take(d_sum), take(d_gain), take(out), take(d_gate_up);
  }

  void optimizer(std::uint64_t seed) {
    constexpr std::int64_t count = 5000;
    Probed parameter = numbers(count, seed), gradient = numbers(count, seed + 1),
           m = filled(1, count, seed + 2), v(type_, 1, count);
    std::memset(v.mat().data, 0, count * tensor::bytes_of(type_));
    kernels::AdamW slice{
        parameter.floats(), gradient.floats(), m.mat().data, v.mat().data, parameter.floats(),
        m.mat().data,       v.mat().data,      type_,        count};
    for (int step = 1; step <= 3; ++step)
      kernels_.adamw(stream_, slice, kernels::step_scalars(1e-3, 0.1, 0.9, 0.95, 1e-8, step, 0.5));
    take(parameter), take(m), take(v);
  }

 private:
  /// Numbers in [-1, 1), no two alike.
  static Probed numbers(std::int64_t count, std::uint64_t seed) {
    Probed out(DType::fp32, 1, count);
    for (std::int64_t i = 0; i < count; ++i)
      out.floats()[i] = static_cast<float>(static_cast<std::int32_t>(
                            mix64(seed << 32 ^ static_cast<std::uint64_t>(i)) >> 32)) *
                        0x1p-31F;
    return out;
  }
  Probed filled(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
    Probed out(type_, rows, cols);
    Probed from = numbers(rows * cols, seed);
    kernels_.convert(stream_, out.mat().data, type_, from.floats(), DType::fp32, rows * cols);
    return out;
  }
  void take(const Probed& result) { sum_ += mix64(result.digest() ^ mix64(++taken_)); }

  kernels::Kernels& kernels_;
  const DType type_;
  tensor::InlineStream stream_;
  std::uint64_t sum_ = 0, taken_ = 0;
};

}  // namespace

std::uint64_t probe_numerics(kernels::Kernels& kernels, const ProbeSeeds& seeds) {
  std::uint64_t sum = 0;
  for (const DType type : {DType::fp32, DType::bf16}) {
    Probe probe(kernels, type);
    probe.products(seeds.products);
    probe.attention(seeds.attention);
    probe.pointwise(seeds.pointwise);
    probe.optimizer(seeds.optimizer);
    sum = mix64(sum ^ probe.sum());
  }
  return sum;
}

std::string probe_line(kernels::Kernels& kernels) {
  return fmt::format("{:016x} {}; {}", probe_numerics(kernels), kernels.identity(DType::fp32),
                     kernels.identity(DType::bf16));
}

}  // namespace holdfast::train
