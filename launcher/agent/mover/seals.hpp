#pragma once
// Which seals lie in the folders of ranks, where clients write them (client/buffers.c) and movers copy them.
// Two generations lie in folders "0" and "1" of a rank's folder. docs/protocol.md ("Snapshot buffers") is the
// contract.
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "src/control/message.hpp"
#include "src/snapshot/seal.hpp"

namespace holdfast::launcher {

using snapshot::folder_called, snapshot::folder_name, snapshot::Seal;

using Generations = std::array<std::optional<Seal>, 2>;
/// Of a rank's folder; nothing in it where there is no valid seal.
Generations read_generations(const std::filesystem::path& folder);
/// `name`: "seal"; or "damaged", what was one until its rank found that a buffer is not what it says.
std::optional<Seal> read_seal(const std::filesystem::path& generation, const char* name = "seal");

/// The generation to write over, so that what the rank's present attempt may come back from stays: its newest
/// seal, or before there is one the state that it began with (`base`).
int generation_to_replace(const Generations& known, int attempt, std::int64_t base_step, int base_attempt);

/// Of all folders of ranks in the folder of a node.
std::vector<control::SealedState> sealed_states(const std::filesystem::path& folder);

}  // namespace holdfast::launcher
