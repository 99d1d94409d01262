// What every backend shares: small tables and scalars computed on the host.
#include "src/kernels/kernels.hpp"

#include <cmath>

namespace holdfast::kernels {

StepScalars step_scalars(double lr, double weight_decay, double beta1, double beta2, double epsilon,
                         std::int64_t t, double gradient_scale) {
  const auto steps = static_cast<double>(t);
  StepScalars s;
  s.lr = static_cast<float>(lr);
  s.lr_decay = static_cast<float>(lr * weight_decay);
  s.beta1 = static_cast<float>(beta1), s.beta2 = static_cast<float>(beta2);
  s.one_minus_beta1 = static_cast<float>(1 - beta1), s.one_minus_beta2 = static_cast<float>(1 - beta2);
  s.inverse_bias1 = static_cast<float>(1 / (1 - std::pow(beta1, steps)));
  s.inverse_bias2 = static_cast<float>(1 / (1 - std::pow(beta2, steps)));
  s.epsilon = static_cast<float>(epsilon);
  s.gradient_scale = static_cast<float>(gradient_scale);
  return s;
}

void rope_table(Mat cosine, Mat sine, double theta) {
  const auto half = static_cast<double>(cosine.cols);
  for (std::int64_t p = 0; p < cosine.rows; ++p)
    for (std::int64_t i = 0; i < cosine.cols; ++i) {
      const double angle = static_cast<double>(p) * std::pow(theta, -static_cast<double>(i) / half);
      cosine.row(p)[i] = static_cast<float>(std::cos(angle));
      sine.row(p)[i] = static_cast<float>(std::sin(angle));
    }
}

}  // namespace holdfast::kernels
