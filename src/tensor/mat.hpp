#pragma once
// A row-major matrix that somebody else owns. The element type is a value, as it is for the precision policy
// that chooses it.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "src/base/error.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::tensor {

/// `Byte` is std::byte or const std::byte.
template <class Byte>
struct MatOf {
  Byte* data = nullptr;  ///< null: no matrix
  DType type = DType::fp32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next, at least cols

  explicit operator bool() const { return data != nullptr; }
  operator MatOf<const std::byte>() const { return {data, type, rows, cols, stride}; }

  /// Row r as elements of type T (float, const float, Bf16, const Bf16), which must be the matrix's.
  template <class T>
  T* row(std::int64_t r) const {
    expects(dtype_of<std::remove_const_t<T>>() == type, "a matrix is read as the type it has");
    return reinterpret_cast<T*>(data) + r * stride;
  }
  /// Rows [first, first + count).
  MatOf rows_at(std::int64_t first, std::int64_t count) const {
    return {data + first * stride * bytes_of(type), type, count, cols, stride};
  }
  /// Columns [first, first + count); the stride stays.
  MatOf cols_at(std::int64_t first, std::int64_t count) const {
    return {data + first * bytes_of(type), type, rows, count, stride};
  }
};

using Mat = MatOf<std::byte>;
using ConstMat = MatOf<const std::byte>;

/// Rows without gaps between them.
inline Mat dense(void* data, DType type, std::int64_t rows, std::int64_t cols) {
  return {static_cast<std::byte*>(data), type, rows, cols, cols};
}
inline ConstMat dense(const void* data, DType type, std::int64_t rows, std::int64_t cols) {
  return {static_cast<const std::byte*>(data), type, rows, cols, cols};
}
inline Mat dense(float* data, std::int64_t rows, std::int64_t cols) {
  return dense(data, DType::fp32, rows, cols);
}
inline ConstMat dense(const float* data, std::int64_t rows, std::int64_t cols) {
  return dense(data, DType::fp32, rows, cols);
}
inline Mat dense(Bf16* data, std::int64_t rows, std::int64_t cols) {
  return dense(data, DType::bf16, rows, cols);
}
inline ConstMat dense(const Bf16* data, std::int64_t rows, std::int64_t cols) {
  return dense(data, DType::bf16, rows, cols);
}

}  // namespace holdfast::tensor
