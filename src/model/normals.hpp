#pragma once
// Normally distributed numbers as a pure function of a counter: the same bits on every processor and with
// every C library, at the speed of vectors.
#include <cstdint>
#include <span>

namespace holdfast::model {

/// out[4 k] to out[4 k + 3] = `scale` times the numbers of Philox block `first` + k of the key (`name`,
/// `seed`): two pairs of Box and Muller ("A note on the generation of random normal deviates", 1958) in fp64,
/// rounded to fp32 at the end. out.size() is a multiple of 4.
void normals(std::uint64_t first, std::uint64_t name, std::uint64_t seed, double scale, std::span<float> out);

}  // namespace holdfast::model
