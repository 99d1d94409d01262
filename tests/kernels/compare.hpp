#pragma once
// Random inputs and comparisons shared by the kernel and model tests.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/kernels/kernels.hpp"
#include "tests/support/reference_llama.hpp"

namespace holdfast::testing {

using reference::Array;
using Floats = std::vector<float>;

inline Array random_array(std::int64_t rows, std::int64_t cols, unsigned seed, double scale = 1.0) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0, scale);
  Array a(rows, cols);
  for (double& x : a.v) x = static_cast<float>(normal(generator));  // exact in both precisions
  return a;
}
inline Floats floats(const Array& a) { return Floats(a.v.begin(), a.v.end()); }
inline kernels::ConstMat view(const Floats& x, std::int64_t cols) {
  return tensor::dense(x.data(), static_cast<std::int64_t>(x.size()) / cols, cols);
}
inline kernels::Mat view(Floats& x, std::int64_t cols) {
  return tensor::dense(x.data(), static_cast<std::int64_t>(x.size()) / cols, cols);
}

/// max |got - want| / max(|want|, floor)
template <class Got, class Want>
double distance(const Got& got, const Want& want, double floor = 1e-30) {
  if (got.size() != want.size()) return INFINITY;
  double worst = 0, size = floor;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    worst = difference <= worst ? worst : difference;  // a NaN stays
    size = std::fmax(size, std::fabs(static_cast<double>(want[i])));
  }
  return worst / size;
}

/// A random function of arrays, sum(seed * f(inputs)), with its fp64 value and gradients.
struct Case {
  std::vector<Array> inputs;
  std::function<int(reference::Tape&, const std::vector<int>&)> f;
  Array out, seed;
  std::vector<Array> gradients;

  Case(std::vector<Array> arrays, std::function<int(reference::Tape&, const std::vector<int>&)> function)
      : inputs(std::move(arrays)), f(std::move(function)) {
    reference::Tape tape;
    std::vector<int> vars;
    for (const auto& a : inputs) vars.push_back(tape.input(a));
    const int y = f(tape, vars);
    out = tape.value(y);
    seed = random_array(out.rows, out.cols, 99);
    tape.backward(y, seed);
    for (const int x : vars) gradients.push_back(tape.gradient(x));
  }
  double value(const std::vector<Array>& at) const {
    reference::Tape tape;
    std::vector<int> vars;
    for (const auto& a : at) vars.push_back(tape.input(a));
    const int y = f(tape, vars);
    double sum = 0;
    for (std::size_t i = 0; i < seed.v.size(); ++i) sum += seed.v[i] * tape.value(y).v[i];
    return sum;
  }
  /// Central differences of every element against the tape's gradient.
  void check_finite_differences() const {
    const double h = 1e-5;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      std::vector<double> differences;
      for (std::size_t i = 0; i < inputs[k].v.size(); ++i) {
        auto up = inputs, down = inputs;
        up[k].v[i] += h, down[k].v[i] -= h;
        differences.push_back((value(up) - value(down)) / (2 * h));
      }
      EXPECT_LT(distance(gradients[k].v, differences), 1e-6) << "input " << k;
    }
  }
};

}  // namespace holdfast::testing
