#include "src/model/fp8_layers.hpp"

#include <numeric>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/fp8.hpp"

namespace holdfast::model {

using kernels::Quantize;
using kernels::Write;
using tensor::DType;

namespace {

int role_of(int linear, Fp8Role role) { return linear * fp8_roles_of_linear + static_cast<int>(role); }
DType type_of_role(int role) { return type_of(static_cast<Fp8Role>(role % fp8_roles_of_linear)); }

/// The beginning of a room as a matrix.
Mat part(Activations& a, Activation room, DType type, std::int64_t rows, std::int64_t cols) {
  const Mat whole = a.mat(room);
  expects(rows * cols <= whole.cols, "8-bit copies have room for the largest operand");
  return tensor::dense(whole.data, type, rows, cols);
}

}  // namespace

Fp8Layers::Fp8Layers(kernels::Kernels& kernels, tensor::Stream& stream, Activations& activations,
                     const Options& options, const config::ModelShape& shape)
    : kernels_(kernels),
      stream_(stream),
      a_(activations),
      delayed_(options.scaling == config::Scaling::delayed),
      keeps_(options.keeps_copies),
      weights_(config::linear_elements(shape)),
      known_(as_size(shape.layers) * fp8_roles, 0),
      inverses_(known_.size() * kernels::inverse_stride) {
  expects(options.activations == DType::bf16, "8-bit products have bf16 activations");
}

void Fp8Layers::set_scales(std::span<const float> scales) {
  expects(scales.size() == known_.size() && delayed_, "delayed scaling has one scale per role");
  for (std::size_t i = 0; i < scales.size(); ++i) {
    known_[i] = scales[i] != 0;
    inverses_[i * kernels::inverse_stride] = scales[i] != 0 ? fp8_inverse(scales[i]) : 0;
  }
  const auto upload = [this](Activation to, std::span<const float> from) {
    stream_.upload(a_.floats(to), from.data(), static_cast<std::int64_t>(from.size_bytes()));
  };
  upload(Activation::fp8_scale, scales), upload(Activation::fp8_inverse, inverses_);
  new_weights();
}

void Fp8Layers::take_amaxes(std::span<std::uint32_t> amaxes) {
  expects(amaxes.size() == known_.size() && delayed_, "delayed scaling has one largest value per role");
  const auto bytes = static_cast<std::int64_t>(amaxes.size_bytes());
  stream_.download(amaxes.data(), words(Activation::fp8_amax), bytes);
  stream_.zero(words(Activation::fp8_amax), bytes);
}

void Fp8Layers::begin_micro_batch(bool records) {
  records_ = records && delayed_;
  makes_copies_ = std::exchange(stale_, false) && keeps_;
  stream_.zero(words(Activation::fp8_measured),
               static_cast<std::int64_t>(known_.size() * sizeof(std::uint32_t)));
}

std::uint64_t Fp8Layers::variant(int layer) const {
  std::uint64_t bits = (records_ ? 1 : 0) | (makes_copies_ ? 2 : 0);
  for (int i = 0; i < fp8_roles; ++i) bits = bits << 1 | (measured(layer * fp8_roles + i) ? 1 : 0);
  return bits;
}

Quantize Fp8Layers::quantize(int role, Mat out, Mat transposed, bool record) const {
  return {out, transposed, a_.floats(Activation::fp8_scale) + role,
          record && records_ ? words(Activation::fp8_amax) + role : nullptr};
}

void Fp8Layers::find_scale(int role) const {
  kernels_.scales(stream_, a_.floats(Activation::fp8_scale) + role, inverse(role),
                  words(Activation::fp8_measured) + role, type_of_role(role), 1);
}

void Fp8Layers::copy(ConstMat x, int role, Mat out, Mat transposed, bool measure) const {
  if (measure && measured(role)) {
    kernels_.amax(stream_, x, words(Activation::fp8_measured) + role);
    find_scale(role);
  }
  kernels_.quantize(stream_, x, quantize(role, out, transposed, measure));
}

Quantize Fp8Layers::input(int linear, std::int64_t tokens, std::int64_t cols, Pass pass) const {
  const int role = role_of(linear, Fp8Role::x);
  if (pass == Pass::first && measured(role))
    return {{}, {}, a_.floats(Activation::fp8_scale) + role, words(Activation::fp8_measured) + role};
  return quantize(role, part(a_, Activation::fp8_left, DType::e4m3, tokens, cols), {}, pass == Pass::first);
}

void Fp8Layers::forward(int linear, Mat y, ConstMat x, ConstMat weight, ConstMat bias, Pass pass) const {
  const int of_x = role_of(linear, Fp8Role::x), of_weight = role_of(linear, Fp8Role::weight);
  const Mat left = part(a_, Activation::fp8_left, DType::e4m3, x.rows, x.cols);
  if (pass == Pass::first && measured(of_x)) {
    find_scale(of_x);
    kernels_.quantize(stream_, x, quantize(of_x, left, {}, true));
  }
  const bool first = pass == Pass::first;
  const Kept copies = keeps_
                          ? kept(linear, weight)
                          : Kept{part(a_, Activation::fp8_right, DType::e4m3, weight.rows, weight.cols), {}};
  if (!keeps_ || (makes_copies_ && first)) copy(weight, of_weight, copies.along, copies.turned, first);
  kernels_.matmul_fp8(stream_, y, left, copies.along, inverse(of_x), inverse(of_weight), Write::replace,
                      bias);
}

Fp8Layers::Kept Fp8Layers::kept(int linear, ConstMat weight) const {
  const int layer = linear / config::linears_of_block, number = linear % config::linears_of_block;
  std::byte* const at = a_.mat(Activation::fp8_weights, layer).data +
                        2 * std::accumulate(weights_.begin(), weights_.begin() + number, std::int64_t{0});
  expects(weight.rows * weight.cols == weights_[as_size(number)], "8-bit copies have room for their weight");
  return {tensor::dense(at, DType::e4m3, weight.rows, weight.cols),
          tensor::dense(at + weights_[as_size(number)], DType::e4m3, weight.cols, weight.rows)};
}

void Fp8Layers::backward(int linear, Mat d_x, Mat d_weight, Write write, ConstMat d_y, ConstMat x,
                         ConstMat weight) const {
  const int of_x = role_of(linear, Fp8Role::x), of_weight = role_of(linear, Fp8Role::weight),
            of_d_y = role_of(linear, Fp8Role::d_y);
  const Mat left = part(a_, Activation::fp8_left, DType::e5m2, d_y.rows, d_y.cols);
  Mat turned;
  if (d_weight) turned = part(a_, Activation::fp8_turned, DType::e5m2, d_y.cols, d_y.rows);
  copy(d_y, of_d_y, left, turned, true);
  if (d_weight) {
    const Mat right = part(a_, Activation::fp8_right, DType::e4m3, x.cols, x.rows);
    copy(x, of_x, {}, right, false);
    kernels_.matmul_fp8(stream_, d_weight, turned, right, inverse(of_d_y), inverse(of_x), write);
  }
  Mat right = keeps_ ? kept(linear, weight).turned
                     : part(a_, Activation::fp8_right, DType::e4m3, weight.cols, weight.rows);
  if (!keeps_) copy(weight, of_weight, {}, right, false);
  kernels_.matmul_fp8(stream_, d_x, left, right, inverse(of_d_y), inverse(of_weight), Write::replace);
}

}  // namespace holdfast::model
