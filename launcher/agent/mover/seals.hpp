#pragma once
// Seals of snapshot buffers, as clients write them (client/buffers.c) and movers copy them. Two generations
// lie in folders "0" and "1" of a rank's folder. docs/protocol.md ("Snapshot buffers") is the contract.
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Of a seal: bytes of its text, and what messages about it can say.
constexpr std::size_t max_seal_bytes = 64 << 10;
constexpr std::int64_t max_seal_step = std::int64_t{1} << 53;
constexpr int max_seal_rank = 1 << 20;

struct Seal {
  struct Buffer {
    std::string name;
    std::int64_t bytes = 0;
    std::uint32_t crc = 0;  ///< CRC-32 of zlib
    bool operator==(const Buffer&) const = default;
  };
  std::int64_t step = -1;
  int attempt = 0, world = 0;
  std::vector<Buffer> buffers;
  bool operator==(const Seal&) const = default;

  bool is(std::int64_t of_step, int of_attempt) const { return step == of_step && attempt == of_attempt; }
};

/// Nothing: it is no seal, or damaged; or a name is no buffer's, or not after the one before it.
std::optional<Seal> seal_of(std::string_view text);
std::string to_text(const Seal& seal);

/// "rank-00007", "copy-00007"; and back.
std::string folder_name(int rank, bool copy);
std::optional<std::pair<int, bool>> folder_called(std::string_view name);

using Generations = std::array<std::optional<Seal>, 2>;
/// Of a rank's folder; nothing in it where there is no valid seal.
Generations read_generations(const std::filesystem::path& folder);
std::optional<Seal> read_seal(const std::filesystem::path& generation);

/// The generation to write over, so that what the rank's present attempt may come back from stays: its newest
/// seal, or before there is one the state that it began with (`base`).
int generation_to_replace(const Generations& known, int attempt, std::int64_t base_step, int base_attempt);

/// Of all folders of ranks in the folder of a node.
std::vector<control::SealedState> sealed_states(const std::filesystem::path& folder);

/// CRC-32 of zlib; `crc`: of what comes before.
std::uint32_t crc32_of(std::uint32_t crc, const void* data, std::size_t bytes);

}  // namespace holdfast::launcher
