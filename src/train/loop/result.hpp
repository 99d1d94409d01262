#pragma once
// result.json in bare mode (contract 1); under an agent the leader writes it.
#include <filesystem>

#include "src/control/rank_link.hpp"

namespace holdfast::train {

/// `goodput`: share of this process's time that went into optimizer steps.
void write_result(const std::filesystem::path& path, const control::FinalState& state, double goodput);

}  // namespace holdfast::train
