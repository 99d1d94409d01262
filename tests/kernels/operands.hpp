#pragma once
// Operands of matrix products that show what is read or written outside of them.
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::testing {

using kernels::ConstMat;
using kernels::Kernels;
using kernels::Mat;
using kernels::Write;
using tensor::Bf16;
using tensor::to_bf16;
using tensor::to_float;

/// A matrix inside a larger one that starts off any alignment.
template <class T>
struct Framed {
  static constexpr std::int64_t gap = 5, front = 3;
  std::int64_t rows, cols, stride = cols + gap;
  std::vector<T> memory;

  Framed(std::int64_t r, std::int64_t c, T content)
      : rows(r), cols(c), memory(as_size(front + r * (c + gap)), content) {}
  T& at(std::int64_t r, std::int64_t c) { return memory[front + r * stride + c]; }
  T at(std::int64_t r, std::int64_t c) const { return memory[front + r * stride + c]; }
  const T* data() const { return memory.data() + front; }
  Mat mat() {
    Mat m = tensor::dense(memory.data() + front, rows, cols);
    m.stride = stride;
    return m;
  }
  ConstMat mat() const { return const_cast<Framed*>(this)->mat(); }
};

/// What no product may read or write.
inline const Bf16 canary = to_bf16(777.0f);

inline Framed<Bf16> random_matrix(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::minstd_rand generator(seed);
  Framed<Bf16> m(rows, cols, canary);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      m.at(r, c) = to_bf16(static_cast<float>(static_cast<int>(generator() % 65536) - 32768) / 16384.0f);
  return m;
}

/// op(a) op(b) of one set of operands in all four forms: a is m x k, b is k x n.
struct Operands {
  std::int64_t m, n, k;
  Framed<Bf16> a, b, a_transposed, b_transposed, bias;

  Operands(std::int64_t m_, std::int64_t n_, std::int64_t k_)
      : m(m_),
        n(n_),
        k(k_),
        a(random_matrix(m, k, 1)),
        b(random_matrix(k, n, 2)),
        a_transposed(k, m, canary),
        b_transposed(n, k, canary),
        bias(random_matrix(1, n, 3)) {
    transpose();
  }
  void transpose() {
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t r = 0; r < m; ++r) a_transposed.at(i, r) = a.at(r, i);
      for (std::int64_t c = 0; c < n; ++c) b_transposed.at(c, i) = b.at(i, c);
    }
  }
  /// An element of the product.
  double product(std::int64_t r, std::int64_t c) const {
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += double{to_float(a.at(r, i))} * double{to_float(b.at(i, c))};
    return sum;
  }
  /// What rounding every sum of k terms to fp32 can change.
  double bound(std::int64_t r, std::int64_t c) const {
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i)
      sum += std::fabs(double{to_float(a.at(r, i))} * double{to_float(b.at(i, c))});
    return sum * static_cast<double>(k) * std::ldexp(1.0, -24);
  }
  void multiply(Kernels& kernels, Mat y, bool ta, bool tb, Write write = Write::replace,
                bool with_bias = false) const {
    tensor::InlineStream stream;
    kernels.matmul(stream, y, ta ? a_transposed.mat() : a.mat(), ta, tb ? b_transposed.mat() : b.mat(), tb,
                   write, with_bias ? bias.mat() : ConstMat{});
  }
};

}  // namespace holdfast::testing
