#include "checkpoint/shards/read_back.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "checkpoint/io/crc32c.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::int64_t sample_stride = 64, run_blocks = 128;  // 8 MiB

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  throw Error(Exit::runtime, "cannot trust " + file.string(), why, "Look at the disk and its cables?");
}

void read(const DirectReader& reader, const fs::path& file, std::span<std::byte> to, std::int64_t offset) {
  if (reader.read(to, offset) != std::ssize(to)) refuse(file, "it ends too early when it is read back");
}

}  // namespace

std::int64_t read_back_bytes(const ShardInfo& shard, ReadBack how_much) {
  if (how_much == ReadBack::none) return 0;
  return std::max(shard.payload_offset, (how_much == ReadBack::full ? run_blocks : 1) * block_bytes);
}

void read_back(const fs::path& file, const ShardInfo& shard, std::string_view metadata,
               std::span<const std::byte> head, ReadBack how_much, std::int64_t step,
               std::span<std::byte> buffer) {
  if (how_much == ReadBack::none) return;
  try {
    const DirectReader reader(file);
    const auto front = buffer.first(shard.payload_offset);
    read(reader, file, front, 0);
    if (std::memcmp(front.data(), metadata.data(), metadata.size()) != 0 ||
        std::memcmp(front.data() + metadata.size(), head.data(), head.size()) != 0)
      refuse(file, "its head reads back otherwise than it was written");
    const Blocks blocks = blocks_of(shard);
    const auto table = table_in(head, blocks.count());
    const std::int64_t count = blocks.count(), each = how_much == ReadBack::full ? run_blocks : 1;
    const auto chosen = static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(step)) % sample_stride);
    for (std::int64_t k = 0; k < count; k += each) {
      if (how_much == ReadBack::sample && k != 0 && k != count - 1 && k % sample_stride != chosen) continue;
      const std::int64_t end = std::min(k + each, count);
      const std::int64_t first = blocks.offset(k),
                         bytes = blocks.offset(end - 1) + blocks.bytes(end - 1) - first;
      read(reader, file, buffer.first(bytes), first);
      for (std::int64_t block = k; block < end; ++block)
        if (crc32c(buffer.data() + (blocks.offset(block) - first), as_size(blocks.bytes(block))) !=
            table[block])
          refuse(file, "block " + std::to_string(block) + " of " + std::to_string(count) +
                           " reads back otherwise than it was written");
    }
  } catch (const std::system_error& e) {
    refuse(file, std::string("it cannot be read back: ") + e.code().message());
  }
}

}  // namespace holdfast::checkpoint
