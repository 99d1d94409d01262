#include "src/train/identity.hpp"

#include <cblas.h>
#include <fmt/core.h>

namespace holdfast::train {

std::string numerics_identity(const config::RunConfig& config, int lanes) {
  constexpr int kernels_version = 1;  // raise it when a kernel's result changes by one bit
  const auto& t = config.train;
  return fmt::format("leaf {}x{}, {} leaves in {} lanes, cpu fp32 kernels {}, OpenBLAS {}", t.micro_batch, t.sequence, t.leaves, lanes,
                     kernels_version, openblas_get_corename());
}

}  // namespace holdfast::train
