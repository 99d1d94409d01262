#pragma once
// A row-major matrix of fp32 that somebody else owns.
#include <cstdint>

namespace holdfast::tensor {

template <class T>
struct MatOf {
  T* data = nullptr;  ///< null: no matrix
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next, at least cols

  T* row(std::int64_t r) const { return data + r * stride; }
  explicit operator bool() const { return data != nullptr; }
  operator MatOf<const T>() const { return {data, rows, cols, stride}; }
  /// Rows [first, first + count).
  MatOf rows_at(std::int64_t first, std::int64_t count) const { return {row(first), count, cols, stride}; }
  /// Columns [first, first + count); the stride stays.
  MatOf cols_at(std::int64_t first, std::int64_t count) const { return {data + first, rows, count, stride}; }
};

using Mat = MatOf<float>;
using ConstMat = MatOf<const float>;

/// Rows without gaps between them.
template <class T>
constexpr MatOf<T> dense(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols};
}

}  // namespace holdfast::tensor
