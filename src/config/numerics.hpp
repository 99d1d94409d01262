#pragma once
// What the bits of a run depend on, as far as settings say it: the first part of the identity that
// checkpoints keep. Ranks refuse a checkpoint of other arithmetic, and `submit` does before them, in the same
// words.
#include <string>

#include "src/base/error.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// "leaf 2x32, 16 leaves in 16 lanes, parameters fp32 ...": resolved settings only. Behind it an identity has
/// what adapters are trained on, " base DIGEST", and ", KERNELS".
std::string arithmetic_of(const RunConfig& config);
/// That part of a whole identity.
std::string arithmetic_in(const std::string& identity);

/// The parts of two identities that differ, `was "X", now "Y"; ...`; "" when none does.
std::string arithmetic_difference(const std::string& found, const std::string& expected);
/// What is said of a checkpoint that differs so: Error (usage).
Error other_arithmetic(const std::string& checkpoint, const std::string& difference);

}  // namespace holdfast::config
