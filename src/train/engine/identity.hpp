#pragma once
// What the bits of a run depend on beside its data (numerics rule 13), as text that checkpoints keep: the
// same text, the same bits.
#include <string>

#include "src/comm/communicator.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::train {

/// `config` is resolved; `base`: digest of the weights that adapters are trained on, "" without adapters;
/// `kernels`: Kernels::identity().
std::string numerics_identity(const config::RunConfig& config, const std::string& base,
                              const std::string& kernels);

/// Collective. Throws Error (unhealthy) on every rank when ranks compute differently, for example on unlike
/// processors.
void require_one_identity(comm::Communicator& world, const std::string& identity);

}  // namespace holdfast::train
