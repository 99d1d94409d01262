#include "src/tools/infer/products.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/base/error.hpp"
#include "src/kernels/cpu_math.hpp"
#include "src/tools/infer/threads.hpp"

namespace holdfast::infer {

using kernels::rounded;
using kernels::sum_lanes;
using tensor::to_float;

namespace {

constexpr std::int64_t task_columns = 64;
constexpr int tile = 4;  // rows and columns whose sums grow together

/// The lanes of kernels::dot() as one value: compilers keep several of them in registers, which they do not
/// do with arrays.
using Lanes = float __attribute__((vector_size(sum_lanes * sizeof(float))));

HOLDFAST_INLINE void load(Lanes& to, const float* x) { std::memcpy(&to, x, sizeof to); }
HOLDFAST_INLINE void load(Lanes& to, const tensor::Bf16* x) {
  using Halves = std::uint16_t __attribute__((vector_size(sum_lanes * sizeof(std::uint16_t))));
  using Words = std::uint32_t __attribute__((vector_size(sum_lanes * sizeof(std::uint32_t))));
  Halves halves;
  std::memcpy(&halves, x, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

/// sums[r][c] = x[r] . w[c] for R rows of x and C of w; as kernels::dot() adds, whatever R and C are.
template <int R, int C, class T>
HOLDFAST_INLINE void dots(float* sums, std::int64_t sums_stride, const float* x, std::int64_t x_stride,
                          const T* w, std::int64_t w_stride, std::int64_t n) {
  Lanes lanes[R][C] = {};
  std::int64_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes) {
    Lanes of_w[C], of_x;
    for (int c = 0; c < C; ++c) load(of_w[c], w + c * w_stride + i);
    for (int r = 0; r < R; ++r) {
      load(of_x, x + r * x_stride + i);
      for (int c = 0; c < C; ++c) lanes[r][c] += of_x * of_w[c];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      float lane[sum_lanes];
      std::memcpy(lane, &lanes[r][c], sizeof lane);
      for (int l = 0; i + l < n; ++l) lane[l] += x[r * x_stride + i + l] * to_float(w[c * w_stride + i + l]);
      sums[r * sums_stride + c] = kernels::merge_lanes(lane);
    }
}

/// sums (rows x columns) = x (rows x n) w (columns x n)^T, in tiles whose lanes are in registers.
template <class T>
HOLDFAST_VECTOR_WIDTHS void multiply(float* sums, const float* x, std::int64_t x_stride, std::int64_t rows,
                                     const T* w, std::int64_t w_stride, std::int64_t columns,
                                     std::int64_t n) {
  for (std::int64_t c = 0; c < columns;) {
    const bool wide = c + tile <= columns;
    std::int64_t r = 0;
    for (; r + tile <= rows; r += tile) {
      float* const to = sums + r * columns + c;
      if (wide)
        dots<tile, tile>(to, columns, x + r * x_stride, x_stride, w + c * w_stride, w_stride, n);
      else
        dots<tile, 1>(to, columns, x + r * x_stride, x_stride, w + c * w_stride, w_stride, n);
    }
    for (; r < rows; ++r) {
      float* const to = sums + r * columns + c;
      if (wide)
        dots<1, tile>(to, columns, x + r * x_stride, x_stride, w + c * w_stride, w_stride, n);
      else
        dots<1, 1>(to, columns, x + r * x_stride, x_stride, w + c * w_stride, w_stride, n);
    }
    c += wide ? tile : 1;
  }
}

/// Rows in groups, so that what a task keeps of the result is small.
constexpr std::int64_t group_rows = 16;

template <class T, class Out>
void columns_of(Mat y, const float* x, ConstMat w, ConstMat bias, std::int64_t first, std::int64_t count) {
  float sums[group_rows * task_columns];
  for (std::int64_t row = 0; row < y.rows; row += group_rows) {
    const std::int64_t rows = std::min(group_rows, y.rows - row);
    multiply(sums, x + row * w.cols, w.cols, rows, w.row<const T>(first), w.stride, count, w.cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      Out* to = y.row<Out>(row + r) + first;
      for (std::int64_t c = 0; c < count; ++c) {
        const float sum = sums[r * count + c];
        to[c] = rounded<Out>(bias ? sum + to_float(bias.row<const T>(0)[first + c]) : sum);
      }
    }
  }
}

}  // namespace

void multiply_rows(Mat y, ConstMat x, ConstMat w, ConstMat bias) {
  expects(y.rows == x.rows && y.cols == w.rows && x.cols == w.cols, "multiply_rows: shapes agree");
  expects(x.type == w.type && (!bias || (bias.type == w.type && bias.cols == y.cols)),
          "multiply_rows: operands are of one type");
  expects(y.type == x.type || y.type == tensor::DType::fp32, "multiply_rows: the type of the result");
  // Once for all columns, and exactly.
  std::vector<float> wide(x.rows * x.cols);
  kernels::with_type(x.type, [&]<class T>() {
    for (std::int64_t r = 0; r < x.rows; ++r)
      std::transform(x.row<const T>(r), x.row<const T>(r) + x.cols, wide.begin() + r * x.cols,
                     [](T e) { return to_float(e); });
  });
  spread((y.cols + task_columns - 1) / task_columns, [&](std::int64_t task) {
    const std::int64_t first = task * task_columns, count = std::min(task_columns, y.cols - first);
    kernels::with_type(x.type, [&]<class T>() {
      kernels::with_type(y.type,
                         [&]<class Out>() { columns_of<T, Out>(y, wide.data(), w, bias, first, count); });
    });
  });
}

}  // namespace holdfast::infer
