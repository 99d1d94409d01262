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
using tensor::Bf16;
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

/// Elements of a type, rounded once; and what they are as numbers.
template <class T>
T element(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return tensor::to_bf16(x);
}
template <class T>
std::vector<T> elements(const Array& a) {
  std::vector<T> out;
  for (const double x : a.v) out.push_back(element<T>(static_cast<float>(x)));
  return out;
}
template <class T>
std::vector<double> numbers(const std::vector<T>& x) {
  std::vector<double> out;
  for (const T& e : x) out.push_back(static_cast<double>(tensor::to_float(e)));
  return out;
}
template <class T>
Array array_of(const std::vector<T>& x, std::int64_t cols) {
  Array a(static_cast<std::int64_t>(x.size()) / cols, cols);
  a.v = numbers(x);
  return a;
}
/// An array whose elements are exact in type T.
template <class T>
Array random_of(std::int64_t rows, std::int64_t cols, unsigned seed, double scale = 1.0) {
  Array a = random_array(rows, cols, seed, scale);
  a.v = numbers(elements<T>(a));
  return a;
}
template <class T>
kernels::ConstMat matrix(const std::vector<T>& x, std::int64_t cols) {
  return tensor::dense(x.data(), static_cast<std::int64_t>(x.size()) / cols, cols);
}
template <class T>
kernels::Mat matrix(std::vector<T>& x, std::int64_t cols) {
  return tensor::dense(x.data(), static_cast<std::int64_t>(x.size()) / cols, cols);
}

/// By how much `got` is further from `want` than the one rounding to its type explains, relative to the
/// largest number wanted.
template <class T>
double beyond_rounding(const std::vector<T>& got, const std::vector<double>& want, double floor = 1e-30) {
  if (got.size() != want.size()) return INFINITY;
  double worst = 0, size = floor;
  const auto is = numbers(got);
  for (std::size_t i = 0; i < want.size(); ++i) {
    // Half a unit in the last of the 8 bits.
    const double half =
        std::is_same_v<T, float> || want[i] == 0 ? 0 : std::ldexp(1.0, std::ilogb(want[i]) - 8);
    const double difference = std::fabs(is[i] - want[i]) - half;
    worst = difference <= worst ? worst : difference;  // a NaN stays
    size = std::fmax(size, std::fabs(want[i]));
  }
  return worst / size;
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

/// What arrives at a result in the backward pass, exact in type T.
template <class T>
Array typed_seed(std::int64_t rows, std::int64_t cols) {
  return random_of<T>(rows, cols, 99);
}

/// A random function of arrays, sum(seed * f(inputs)), with its fp64 value and gradients.
struct Case {
  std::vector<Array> inputs;
  std::function<int(reference::Tape&, const std::vector<int>&)> f;
  Array out, seed;
  std::vector<Array> gradients;

  using Seed = Array (*)(std::int64_t rows, std::int64_t cols);
  Case(std::vector<Array> arrays, std::function<int(reference::Tape&, const std::vector<int>&)> function,
       Seed make_seed = typed_seed<float>)
      : inputs(std::move(arrays)), f(std::move(function)) {
    reference::Tape tape;
    std::vector<int> vars;
    for (const auto& a : inputs) vars.push_back(tape.input(a));
    const int y = f(tape, vars);
    out = tape.value(y);
    seed = make_seed(out.rows, out.cols);
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
        up[k].v[i] += h;
        down[k].v[i] -= h;
        differences.push_back((value(up) - value(down)) / (2 * h));
      }
      EXPECT_LT(distance(gradients[k].v, differences), 1e-6) << "input " << k;
    }
  }
};

}  // namespace holdfast::testing
