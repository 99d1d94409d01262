#pragma once
// result.json in bare mode (contract 1); under an agent the leader writes it.
#include <filesystem>
#include <optional>

#include "checkpoint/index/best.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::train {

/// `goodput`: share of this process's time that went into optimizer steps. `best`: the checkpoint that the
/// run keeps as its best one.
void write_result(const std::filesystem::path& path, const control::FinalState& state, double goodput,
                  const std::optional<checkpoint::Best>& best);

}  // namespace holdfast::train
