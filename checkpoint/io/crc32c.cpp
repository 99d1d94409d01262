#include "checkpoint/io/crc32c.hpp"

#include <isa-l/crc.h>

#include "src/base/wide_vectors.hpp"

namespace holdfast::checkpoint {

std::uint32_t crc32c(const void* data, std::size_t bytes) {
  auto* first =
      const_cast<unsigned char*>(static_cast<const unsigned char*>(data));  // ISA-L's signature lacks const
  const std::uint32_t crc = ~crc32_iscsi(first, static_cast<int>(bytes), ~0u);
  leave_wide_vectors();
  return crc;
}

}  // namespace holdfast::checkpoint
