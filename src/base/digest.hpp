#pragma once
// The state digest (contract 2): a sum over elements, so it can be computed by parts and does not depend on
// how a tensor is cut.
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "src/base/dtype.hpp"

namespace holdfast {

/// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27, x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// Contribution of one element: `index` is its place in the whole logical tensor, `bits` its pattern.
constexpr std::uint64_t digest_element(std::uint64_t index, std::uint64_t bits) {
  return mix64((index + 1) * 0x9e3779b97f4a7c15u ^ mix64(bits + 0x632be59bd9b4e019u));
}

/// Partial digest of elements [first, first + values.size()) of a tensor. Partial digests add (mod 2^64).
inline std::uint64_t digest_part(std::uint64_t first, std::span<const float> values) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += digest_element(first + i, std::bit_cast<std::uint32_t>(values[i]));
  return sum;
}

/// The same of `count` elements of any type, wherever they lie.
inline std::uint64_t digest_part(std::uint64_t first, const void* data, DType type, std::int64_t count) {
  const auto n = static_cast<std::uint64_t>(count);
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < n && type == DType::fp32; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes + 4 * i, 4);
    sum += digest_element(first + i, bits);
  }
  for (std::uint64_t i = 0; i < n && type == DType::bf16; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, 2);
    sum += digest_element(first + i, bits);
  }
  return sum;
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
