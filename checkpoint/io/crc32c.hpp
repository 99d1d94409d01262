#pragma once
// CRC32C (Castagnoli) of a block, by ISA-L: about 8 GB/s on one core.
#include <cstddef>
#include <cstdint>

namespace holdfast::checkpoint {

/// At most 2 GiB at once. crc32c("123456789") is 0xe3069283.
std::uint32_t crc32c(const void* data, std::size_t bytes);

}  // namespace holdfast::checkpoint
