#pragma once
// Elements as kernels move them: 16 bytes at a time, fp32 in registers, rounded once when they are stored.
// The bits are those of src/base/dtype.hpp and src/base/fp8.hpp, on the device by its own conversion
// instructions.
//
// For device code of .cu files, which are compiled with --expt-relaxed-constexpr.
#include <bit>
#include <cstdint>
#include <cstring>

#include "src/base/dtype.hpp"
#include "src/base/error.hpp"
#include "src/base/fp8.hpp"

#ifdef __CUDACC__
#define HOLDFAST_DEVICE __device__ __forceinline__
#else
#define HOLDFAST_DEVICE inline
#endif

namespace holdfast::cuda {

/// N values as bf16, two to a word, the first in the lower half: holdfast::to_bf16() of each.
template <int N>
HOLDFAST_DEVICE void bf16_pairs(std::uint32_t (&pair)[N / 2], const float (&x)[N]) {
#ifdef __CUDA_ARCH__
  // The instruction makes every NaN the same one, so NaNs take the other way: one branch for all.
  bool nan = false;
#pragma unroll
  for (int w = 0; w < N / 2; ++w) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair[w]) : "f"(x[2 * w + 1]), "f"(x[2 * w]));
    nan |= x[2 * w] != x[2 * w] || x[2 * w + 1] != x[2 * w + 1];
  }
  if (!nan) return;
#endif
#pragma unroll
  for (int w = 0; w < N / 2; ++w)
    pair[w] = to_bf16(x[2 * w]).bits | static_cast<std::uint32_t>(to_bf16(x[2 * w + 1]).bits) << 16;
}

/// Two values as 8-bit floats, `low` in the lower byte: holdfast::to_fp8<T>() of each.
template <class T>
HOLDFAST_DEVICE std::uint32_t fp8_pair(float low, float high) {
  static_assert(is_fp8(dtype_of<T>()));
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if constexpr (dtype_of<T>() == DType::e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return to_fp8<T>(low).bits | static_cast<std::uint32_t>(to_fp8<T>(high).bits) << 8;
#endif
}

/// One value, rounded to T: float, Bf16, E4m3 or E5m2.
template <class T>
HOLDFAST_DEVICE T rounded(float x) {
  if constexpr (dtype_of<T>() == DType::fp32)
    return x;
  else if constexpr (dtype_of<T>() == DType::bf16) {
    std::uint32_t pair[1];
    bf16_pairs<2>(pair, {x, 0.0f});
    return {static_cast<std::uint16_t>(pair[0])};
  } else
    return {static_cast<std::uint8_t>(fp8_pair<T>(x, 0.0f))};
}

/// N consecutive elements of type T (float, Bf16, E4m3, E5m2), packed as they lie in memory: 4, 8, 16 or 32
/// bytes. Loops over one are unrolled, so that it stays in registers.
template <class T, int N = 16 / static_cast<int>(sizeof(T))>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  static constexpr int size = N;
  static constexpr int words = N * static_cast<int>(sizeof(T)) / 4;
  static_assert(words == 1 || words == 2 || words == 4 || words == 8);

  std::uint32_t word[words];

  /// Element i as fp32, for fp32 and bf16; i must be known to the compiler.
  HOLDFAST_DEVICE float at(int i) const {
    static_assert(!is_fp8(dtype_of<T>()));
    if constexpr (dtype_of<T>() == DType::fp32)
      return std::bit_cast<float>(word[i]);
    else
      return std::bit_cast<float>(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000u);
  }

  /// x, rounded.
  HOLDFAST_DEVICE static Pack of(const float (&x)[N]) {
    Pack pack;
    if constexpr (dtype_of<T>() == DType::bf16) {
      bf16_pairs<N>(pack.word, x);
    } else {
#pragma unroll
      for (int w = 0; w < words; ++w) {
        if constexpr (dtype_of<T>() == DType::fp32)
          pack.word[w] = std::bit_cast<std::uint32_t>(x[w]);
        else
          pack.word[w] = fp8_pair<T>(x[4 * w], x[4 * w + 1]) | fp8_pair<T>(x[4 * w + 2], x[4 * w + 3]) << 16;
      }
    }
    return pack;
  }

  /// From and to an address aligned to the pack (32 bytes: to 16).
#ifdef __CUDACC__
  HOLDFAST_DEVICE static Pack load(const T* from) { return *reinterpret_cast<const Pack*>(from); }
  HOLDFAST_DEVICE void store(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
#else
  static Pack load(const T* from) {
    Pack pack;
    std::memcpy(&pack, aligned(from), sizeof pack);
    return pack;
  }
  void store(T* to) const {
    std::memcpy(static_cast<void*>(const_cast<T*>(aligned(to))), this, sizeof *this);
  }
#endif

  /// The first `count` (or N, if that is less) elements, one by one, from any address; zeros behind them.
  HOLDFAST_DEVICE static Pack load_some(const T* from, std::int64_t count) {
    constexpr int per_word = 4 / static_cast<int>(sizeof(T));
    const int there = limited(count);
    Pack pack;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      pack.word[w] = 0;
#pragma unroll
      for (int i = 0; i < per_word; ++i)
        if (w * per_word + i < there)
          pack.word[w] |= bits_of(from[w * per_word + i]) << (8 * i * static_cast<int>(sizeof(T)) % 32);
    }
    return pack;
  }
  HOLDFAST_DEVICE void store_some(T* to, std::int64_t count) const {
    constexpr int per_word = 4 / static_cast<int>(sizeof(T));
    const int there = limited(count);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < there)
        to[i] = element(word[i / per_word] >> (8 * (i % per_word) * static_cast<int>(sizeof(T))));
  }

  /// `whole`: known to be aligned, with all N elements there.
  template <bool whole>
  HOLDFAST_DEVICE static Pack load(const T* from, std::int64_t count) {
    if constexpr (whole)
      return load(from);
    else
      return load_some(from, count);
  }
  template <bool whole>
  HOLDFAST_DEVICE void store(T* to, std::int64_t count) const {
    if constexpr (whole)
      store(to);
    else
      store_some(to, count);
  }

  /// The elements from i on of a row of n. Behind the row's end, of a `whole` one: its first elements, so
  /// that no branch holds up the loads that follow; else zeros.
  template <bool whole, class Index>
  HOLDFAST_DEVICE static Pack load_at(const T* row, Index i, Index n) {
    if constexpr (whole)
      return load(row + (i < n ? i : 0));
    else
      return load_some(row + i, n - i);
  }
  /// Nothing behind the row's end.
  template <bool whole, class Index>
  HOLDFAST_DEVICE void store_at(T* row, Index i, Index n) const {
    if (i < n) store<whole>(row + i, n - i);
  }

 private:
#ifndef __CUDACC__
  /// A GPU stops at an address that is not; the CPU would not notice.
  static const T* aligned(const T* address) {
    expects(reinterpret_cast<std::uintptr_t>(address) % alignof(Pack) == 0, "packs are aligned");
    return address;
  }
#endif
  HOLDFAST_DEVICE static int limited(std::int64_t count) {
    return count < 0 ? 0 : count < N ? static_cast<int>(count) : N;
  }
  HOLDFAST_DEVICE static std::uint32_t bits_of(const T& x) {
    if constexpr (dtype_of<T>() == DType::fp32)
      return std::bit_cast<std::uint32_t>(x);
    else
      return x.bits;
  }
  HOLDFAST_DEVICE static T element(std::uint32_t bits) {
    if constexpr (dtype_of<T>() == DType::fp32)
      return std::bit_cast<float>(bits);
    else
      return {static_cast<decltype(T::bits)>(bits)};
  }
};

/// Bits of |x|: as unsigned numbers they are ordered like the values, with NaNs above all.
HOLDFAST_DEVICE std::uint32_t size_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

}  // namespace holdfast::cuda
