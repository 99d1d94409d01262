#pragma once
// What the bits of a run depend on beside its data (numerics rule 13), as text that checkpoints keep: the same text, the
// same bits.
#include <string>

#include "src/config/run_config.hpp"

namespace holdfast::train {

/// `lanes`: the resolved number.
std::string numerics_identity(const config::RunConfig& config, int lanes);

}  // namespace holdfast::train
