#pragma once
// Random elements, and whether two arrays hold the same bits.
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "src/base/dtype.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda::test {

template <class T>
T element(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return to_bf16(x);
}

template <class T>
std::vector<T> random_elements(std::int64_t count, unsigned seed, double scale = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> values(count);
  for (T& value : values) value = element<T>(static_cast<float>(normal(generator)));
  return values;
}

/// "" or the first element that differs. NaNs are all alike: processors make different ones.
template <class T>
std::string difference(std::span<const T> got, std::span<const T> want) {
  if (got.size() != want.size()) return "another number of elements";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float a = to_float(got[i]), b = to_float(want[i]);
    const bool same = a != a ? b != b : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    if (!same)
      return "element " + std::to_string(i) + " is " + std::to_string(a) + ", not " + std::to_string(b);
  }
  return "";
}
template <class T>
std::string difference(const std::vector<T>& got, const std::vector<T>& want) {
  return difference(std::span<const T>(got), std::span<const T>(want));
}

/// Rows of `data`, `stride` elements apart.
template <class T>
tensor::Mat rows_of(T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  using Element = std::remove_const_t<T>;
  return {reinterpret_cast<std::byte*>(const_cast<Element*>(data)), dtype_of<Element>(), rows, cols, stride};
}

}  // namespace holdfast::cuda::test
