#pragma once
// How many micro-batches a rank reads ahead, which planner and ranks both ask. Pure.
#include <cstdint>

#include "src/config/run_config.hpp"

namespace holdfast::config {

/// As many as data.read_ahead_mb holds, 2 to 16384.
int micro_batches_ahead(const RunConfig& config);
/// Host memory that they take in each rank.
std::int64_t read_ahead_bytes(const RunConfig& config);

}  // namespace holdfast::config
