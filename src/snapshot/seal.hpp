#pragma once
// The seal of a state in the memory of a node (client/seal.h), and the names of the folders that states lie
// in. docs/protocol.md ("Snapshot buffers") is the contract.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern "C" {
#include "client/seal.h"
}

namespace holdfast::snapshot {

struct Seal {
  struct Buffer {
    std::string name;
    std::int64_t bytes = 0;
    std::uint32_t crc = 0;  ///< CRC-32 of zlib
    bool operator==(const Buffer&) const = default;
  };
  std::int64_t step = -1;
  int attempt = 0, world = 0;
  std::vector<Buffer> buffers = {};  ///< names ascend
  std::string note = {};             ///< of the trainer, a line; "": there is none
  bool operator==(const Seal&) const = default;

  bool is(std::int64_t of_step, int of_attempt) const { return step == of_step && attempt == of_attempt; }
};

/// Reads a text up to its first NUL. Nothing: it is no seal, or damaged; or a name is no buffer's, or not
/// after the one before it.
std::optional<Seal> seal_of(const std::string& text);
std::string to_text(const Seal& seal);

/// In the folder of a node: "rank-00007" of a rank that runs there, "copy-00007" of one that runs elsewhere.
std::string folder_name(int rank, bool copy);
/// Nothing: folder_name() gives no such name.
std::optional<std::pair<int, bool>> folder_called(std::string_view name);

/// CRC-32 of zlib; `crc`: of what comes before.
std::uint32_t crc32_of(std::uint32_t crc, const void* data, std::size_t bytes);

}  // namespace holdfast::snapshot
