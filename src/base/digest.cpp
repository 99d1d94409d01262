#include "src/base/digest.hpp"

#include <cstddef>
#include <cstring>

namespace holdfast {
namespace {

using Sum = std::uint64_t (*)(std::uint64_t first, const std::byte* bytes, std::uint64_t count);

template <class Word>
std::uint64_t plain_sum(std::uint64_t first, const std::byte* bytes, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Word bits = 0;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    sum += digest_element(first + i, bits);
  }
  return sum;
}

typedef std::uint64_t Vector4 __attribute__((vector_size(32)));
typedef std::uint64_t Vector8 __attribute__((vector_size(64)));

/// The same with a vector of 64-bit lanes at a time, each of which brings two fp32 or four bf16: neighbours
/// in memory, taken apart by shifts. Inlined into functions whose instruction sets have such vectors; and no
/// vector is passed to a function, because calling conventions differ between instruction sets.
template <class Word, class Vector>
[[gnu::always_inline]] inline std::uint64_t vector_sum(std::uint64_t first, const std::byte* bytes,
                                                       std::uint64_t count) {
  constexpr std::size_t lanes = sizeof(Vector) / 8, in_lane = 8 / sizeof(Word), step = lanes * in_lane;
  constexpr std::uint64_t width = 8 * sizeof(Word), mask = (std::uint64_t{1} << width) - 1;
  Vector index[in_lane]{};  // the product in digest_element, which grows by the same amount each time
  for (std::size_t part = 0; part < in_lane; ++part)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      index[part][lane] = (first + lane * in_lane + part + 1) * digest_stride;
  Vector sum{};
  std::uint64_t i = 0;
  for (; i + step <= count; i += step) {
    Vector words;
    std::memcpy(&words, bytes + i * sizeof(Word), sizeof words);
#pragma GCC unroll 4
    for (std::size_t part = 0; part < in_lane; ++part) {
      Vector x = (words >> part * width & mask) + digest_offset;
      x ^= x >> 30;
      x *= mix64_first;
      x ^= x >> 27;
      x *= mix64_second;
      x ^= x >> 31;
      x ^= index[part];
      x ^= x >> 30;
      x *= mix64_first;
      x ^= x >> 27;
      x *= mix64_second;
      sum += x ^ x >> 31;
      index[part] += digest_stride * step;
    }
  }
  std::uint64_t total = plain_sum<Word>(first + i, bytes + i * sizeof(Word), count - i);
  for (std::size_t lane = 0; lane < lanes; ++lane) total += sum[lane];
  return total;
}

#define HOLDFAST_AVX512 __attribute__((target("avx512f,avx512dq")))
#define HOLDFAST_AVX2 __attribute__((target("avx2")))

template <class Word>
HOLDFAST_AVX512 std::uint64_t avx512_sum(std::uint64_t first, const std::byte* bytes, std::uint64_t count) {
  return vector_sum<Word, Vector8>(first, bytes, count);
}

template <class Word>
HOLDFAST_AVX2 std::uint64_t avx2_sum(std::uint64_t first, const std::byte* bytes, std::uint64_t count) {
  return vector_sum<Word, Vector4>(first, bytes, count);
}

template <class Word>
Sum sum_by(DigestBy by) {
  switch (by) {
    case DigestBy::avx512:
      return avx512_sum<Word>;
    case DigestBy::avx2:
      return avx2_sum<Word>;
    case DigestBy::plain:
      break;
  }
  return plain_sum<Word>;
}

}  // namespace

DigestBy fastest_digest() {
  static const DigestBy fastest = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
                                      ? DigestBy::avx512
                                  : __builtin_cpu_supports("avx2") ? DigestBy::avx2
                                                                   : DigestBy::plain;
  return fastest;
}

std::uint64_t digest_part(std::uint64_t first, const void* data, DType type, std::int64_t count,
                          DigestBy by) {
  const auto* bytes = static_cast<const std::byte*>(data);
  const Sum sum = type == DType::fp32 ? sum_by<std::uint32_t>(by) : sum_by<std::uint16_t>(by);
  return sum(first, bytes, static_cast<std::uint64_t>(count));
}

}  // namespace holdfast
