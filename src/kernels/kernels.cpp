// What every backend shares: small tables and scalars computed on the host.
#include "src/kernels/kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "src/base/error.hpp"

namespace holdfast::kernels {

StepScalars step_scalars(double lr, double weight_decay, double beta1, double beta2, double epsilon,
                         std::int64_t t, double gradient_scale) {
  const auto steps = static_cast<double>(t);
  StepScalars s;
  s.lr = static_cast<float>(lr);
  s.lr_decay = static_cast<float>(lr * weight_decay);
  s.beta1 = static_cast<float>(beta1);
  s.beta2 = static_cast<float>(beta2);
  s.one_minus_beta1 = static_cast<float>(1 - beta1);
  s.one_minus_beta2 = static_cast<float>(1 - beta2);
  s.inverse_bias1 = static_cast<float>(1 / (1 - std::pow(beta1, steps)));
  s.inverse_bias2 = static_cast<float>(1 / (1 - std::pow(beta2, steps)));
  s.epsilon = static_cast<float>(epsilon);
  s.gradient_scale = static_cast<float>(gradient_scale);
  return s;
}

namespace {

/// Meta's `apply_scaling` (github.com/meta-llama/llama-models, models/llama3/model.py): an angular frequency
/// whose wavelength is long beside the sequence the model was first trained on is divided by the factor.
double stretched(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < s.original_sequence / s.high_frequency) return frequency;
  if (wavelength > s.original_sequence / s.low_frequency) return frequency / s.factor;
  const double smooth =
      (s.original_sequence / wavelength - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// Peng et al., "YaRN: Efficient context window extension of large language models" (2023), as transformers
/// has it: between the places of the head whose pairs turn high_frequency and low_frequency times, rounded
/// outwards, the share of what is slowed down grows evenly.
double by_place(double place, double half, double theta, double frequency, const RopeScaling& s) {
  const auto place_of = [&](double turns) {
    return half * std::log(s.original_sequence / (turns * 2 * std::numbers::pi)) / std::log(theta);
  };
  const double first = std::max(std::floor(place_of(s.high_frequency)), 0.0);
  const double last = std::min(std::ceil(place_of(s.low_frequency)), 2 * half - 1);
  const double slowed = std::clamp((place - first) / (last == first ? 0.001 : last - first), 0.0, 1.0);
  return slowed * frequency / s.factor + (1 - slowed) * frequency;
}

/// The frequency of the pair at `place` of `half`.
double frequency_of(double place, double half, double theta, const RopeScaling& s) {
  const double frequency = std::pow(theta, -place / half);
  if (s.type == RopeType::longrope) return frequency / s.factors[static_cast<std::int64_t>(place)];
  if (s.factor == 1 || s.type == RopeType::dynamic) return frequency;
  if (s.type == RopeType::linear) return frequency / s.factor;
  return s.type == RopeType::yarn ? by_place(place, half, theta, frequency, s) : stretched(frequency, s);
}

/// To bf16 with one rounding: the float on the way is rounded to odd, which keeps every tie and every
/// direction.
tensor::Bf16 once(double value) {
  auto x = static_cast<float>(value);
  if (std::fabs(static_cast<double>(x)) > std::fabs(value)) x = std::nextafter(x, 0.0f);
  if (static_cast<double>(x) != value) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | 1);
  return tensor::to_bf16(x);
}

void store(Mat table, std::int64_t row, std::int64_t column, double value) {
  if (table.type == DType::fp32)
    table.row<float>(row)[column] = static_cast<float>(value);
  else
    table.row<tensor::Bf16>(row)[column] = once(value);
}

}  // namespace

void rope_table(Mat cosine, Mat sine, double theta, const RopeScaling& scaling) {
  expects(sine.rows == cosine.rows && sine.cols == cosine.cols, "rope_table: two tables of one shape");
  expects(scaling.type != RopeType::longrope || std::ssize(scaling.factors) == cosine.cols,
          "rope_table: longrope has a factor for each pair");
  const auto half = static_cast<double>(cosine.cols);
  for (std::int64_t i = 0; i < cosine.cols; ++i) {
    const double frequency = frequency_of(static_cast<double>(i), half, theta, scaling);
    for (std::int64_t p = 0; p < cosine.rows; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      store(cosine, p, i, scaling.magnitude * std::cos(angle));
      store(sine, p, i, scaling.magnitude * std::sin(angle));
    }
  }
}

}  // namespace holdfast::kernels
