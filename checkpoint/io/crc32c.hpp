#pragma once
// CRC32C (Castagnoli) of a block, by ISA-L: about 8 GB/s on one core.
#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>

namespace holdfast::checkpoint {

/// At most 2 GiB at once. crc32c("123456789") is 0xe3069283.
inline std::uint32_t crc32c(const void* data, std::size_t bytes) {
  auto* first =
      const_cast<unsigned char*>(static_cast<const unsigned char*>(data));  // ISA-L's signature lacks const
  return ~crc32_iscsi(first, static_cast<int>(bytes), ~0u);
}

}  // namespace holdfast::checkpoint
