#pragma once
// The inner loop of MinHash: the least value of a set under each of many permutations.
//
// Permutation i of the 32-bit numbers is x -> (x ^ b_i) * a_i mod 2^32, a_i odd, with constants that never
// change: an exclusive or, a product and a minimum, which every vector unit has. Each hash is computed for
// itself, where one-permutation hashing with densification (Shrivastava, "Optimal densification for fast and
// accurate minwise hashing", 2017) would do with one hash per element, because there the rows of a band of a
// short text repeat each other and the curve of bands and rows no longer holds; and with vectors, reading the
// words is the longer part anyway.
#include <cstdint>
#include <span>

namespace holdfast::corpus {

/// Most permutations there are.
inline constexpr int max_hashes = 1024;
/// Signatures are multiples of this long, the longest vector's lanes.
inline constexpr int signature_step = 8;

/// How it is computed; the numbers are the same. Only what the processor has may be asked for. (AVX-512 is no
/// faster here, and AVX2 is quicker than the reading of words.)
enum class Lanes { plain, avx2 };
Lanes widest_lanes();

/// signature[i] = min(signature[i], permutation i of each of `elements`). `signature`: a multiple of
/// signature_step, at most max_hashes; all ones stand for the empty set.
void lower(std::span<std::uint32_t> signature, std::span<const std::uint32_t> elements,
           Lanes lanes = widest_lanes());

}  // namespace holdfast::corpus
