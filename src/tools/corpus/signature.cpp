#include "src/tools/corpus/signature.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::corpus {
namespace {

struct Permutations {
  std::array<std::uint32_t, max_hashes> flip{}, times{};
};

constexpr Permutations permutations = [] {
  Permutations made;
  for (std::size_t i = 0; i < max_hashes; ++i) {
    const std::uint64_t bits = mix64((i + 1) * digest_stride);
    made.flip[i] = static_cast<std::uint32_t>(bits >> 32);
    made.times[i] = static_cast<std::uint32_t>(bits) | 1;
  }
  return made;
}();

typedef std::uint32_t Vector4 __attribute__((vector_size(16)));
typedef std::uint32_t Vector8 __attribute__((vector_size(32)));

/// `together` vectors of the signature from element `at` on stay in registers while all elements pass by.
/// Inlined into functions whose instruction sets have such vectors; and no vector is passed to a function,
/// because calling conventions differ between instruction sets.
template <class Vector, int together>
[[gnu::always_inline]] inline void lower_some(std::uint32_t* signature, std::size_t at,
                                              std::span<const std::uint32_t> elements) {
  constexpr std::size_t lanes = sizeof(Vector) / sizeof(std::uint32_t);
  Vector least[together], flip[together], times[together];
  for (int v = 0; v < together; ++v) {
    const std::size_t first = at + as_size(v) * lanes;
    std::memcpy(&least[v], signature + first, sizeof(Vector));
    std::memcpy(&flip[v], &permutations.flip[first], sizeof(Vector));
    std::memcpy(&times[v], &permutations.times[first], sizeof(Vector));
  }
  for (const std::uint32_t element : elements)
#pragma GCC unroll 4
    for (int v = 0; v < together; ++v) {
      const Vector value = (flip[v] ^ element) * times[v];
      least[v] = value < least[v] ? value : least[v];
    }
  for (int v = 0; v < together; ++v)
    std::memcpy(signature + at + as_size(v) * lanes, &least[v], sizeof(Vector));
}

template <class Vector>
[[gnu::always_inline]] inline void lower_all(std::span<std::uint32_t> signature,
                                             std::span<const std::uint32_t> elements) {
  constexpr std::size_t lanes = sizeof(Vector) / sizeof(std::uint32_t), group = 4;
  std::size_t at = 0;
  for (; at + group * lanes <= signature.size(); at += group * lanes)
    lower_some<Vector, group>(signature.data(), at, elements);
  for (; at < signature.size(); at += lanes) lower_some<Vector, 1>(signature.data(), at, elements);
}

__attribute__((target("avx2"))) void lower_avx2(std::span<std::uint32_t> signature,
                                                std::span<const std::uint32_t> elements) {
  lower_all<Vector8>(signature, elements);
}

}  // namespace

Lanes widest_lanes() {
  static const Lanes widest = __builtin_cpu_supports("avx2") ? Lanes::avx2 : Lanes::plain;
  return widest;
}

void lower(std::span<std::uint32_t> signature, std::span<const std::uint32_t> elements, Lanes lanes) {
  expects(signature.size() % signature_step == 0 && signature.size() <= max_hashes,
          "a signature of whole vectors");
  switch (lanes) {
    case Lanes::avx2:
      return lower_avx2(signature, elements);
    case Lanes::plain:
      return lower_all<Vector4>(signature, elements);
  }
}

}  // namespace holdfast::corpus
