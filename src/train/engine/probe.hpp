#pragma once
// Does this machine compute the same bits as another one? A fixed piece of training in every type, through
// the kernels that its processor would get, in well under a second, with no MPI.
#include <cstdint>
#include <string>

#include "src/kernels/kernels.hpp"

namespace holdfast::train {

/// What the inputs are made from, by kernel.
struct ProbeSeeds {
  std::uint64_t products = 1, attention = 2, pointwise = 3, optimizer = 4;
};

/// Digest of all results. `kernels`: of the host; equal on every machine on which they give the same bits.
std::uint64_t probe_numerics(kernels::Kernels& kernels, const ProbeSeeds& seeds = {});

/// "0123456789abcdef IDENTITY": the digest, and the identities of the kernels in fp32 and bf16.
std::string probe_line(kernels::Kernels& kernels);

}  // namespace holdfast::train
