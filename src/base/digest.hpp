#pragma once
// The state digest (contract 2): a sum over elements, so it can be computed by parts and does not depend on
// how a tensor is cut.
#include <cstdint>
#include <span>

#include "src/base/dtype.hpp"

namespace holdfast {

/// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t mix64_first = 0xbf58476d1ce4e5b9u, mix64_second = 0x94d049bb133111ebu;
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= mix64_first;
  x ^= x >> 27;
  x *= mix64_second;
  return x ^ x >> 31;
}

/// Contribution of one element: `index` is its place in the whole logical tensor, `bits` its pattern.
constexpr std::uint64_t digest_stride = 0x9e3779b97f4a7c15u, digest_offset = 0x632be59bd9b4e019u;
constexpr std::uint64_t digest_element(std::uint64_t index, std::uint64_t bits) {
  return mix64((index + 1) * digest_stride ^ mix64(bits + digest_offset));
}

/// The exponent's bits in an fp32 (4 bytes) or a bf16 (2 bytes). An element in which all are set is NaN or
/// infinite.
template <class Word>
constexpr Word exponent_bits = sizeof(Word) == 4 ? 0x7f800000u : 0x7f80u;

/// How the sum is computed; the number is the same. Only what the processor has may be asked for.
enum class DigestBy { plain, avx2, avx512 };
DigestBy fastest_digest();

/// Partial digest of elements [first, first + count) of a tensor, wherever they lie. Partial digests add
/// (mod 2^64).
std::uint64_t digest_part(std::uint64_t first, const void* data, DType type, std::int64_t count,
                          DigestBy by = fastest_digest());
inline std::uint64_t digest_part(std::uint64_t first, std::span<const float> values) {
  return digest_part(first, values.data(), DType::fp32, std::ssize(values));
}

/// FNV-1a, to key a tensor's digest by its name.
constexpr std::uint64_t hash_name(const char* name, std::size_t size) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < size; ++i) h = (h ^ static_cast<unsigned char>(name[i])) * 0x100000001b3u;
  return h;
}

/// One number for many tensors: a sum over tensors of mix64(name hash ^ mix64(tensor digest)); order-free.
constexpr std::uint64_t combine_digests(std::uint64_t so_far, std::uint64_t name_hash,
                                        std::uint64_t tensor_digest) {
  return so_far + mix64(name_hash ^ mix64(tensor_digest));
}

}  // namespace holdfast
