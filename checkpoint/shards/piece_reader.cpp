#include "checkpoint/shards/piece_reader.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::size_t max_open = 256;

}  // namespace

PieceReader::PieceReader(fs::path step_dir, const Manifest& manifest)
    : step_dir_(std::move(step_dir)),
      manifest_(manifest),
      stored_(where_stored(manifest)),
      places_(std::min(max_open, std::max<std::size_t>(1, manifest.shards.size()))) {
  for (const ShardInfo& shard : manifest.shards) {
    const std::int64_t each = blocks_of(shard).each;
    room_bytes_ = std::max(room_bytes_, whole_pages(each * blocks_per_run(each)));
  }
}

std::shared_ptr<const ShardReader> PieceReader::open(std::size_t shard) {
  Place& place = places_[shard % places_.size()];
  const std::scoped_lock hold(place.lock);
  if (!place.reader || place.shard != shard) {
    place.reader = std::make_shared<const ShardReader>(step_dir_, manifest_, shard);
    place.shard = shard;
  }
  return place.reader;
}

void PieceReader::read(int tensor, std::int64_t first, std::int64_t count, std::byte* to,
                       std::span<std::byte> room) {
  const auto t = as_size(tensor);
  const std::vector<Stored>& pieces = stored_.at(t);
  const std::int64_t each = bytes_of(manifest_.tensors[t].type), end = first + count;
  auto at = std::upper_bound(pieces.begin(), pieces.end(), first,
                             [](std::int64_t element, const Stored& s) { return element < s.first; });
  if (at != pieces.begin()) --at;
  for (; at != pieces.end() && at->first < end; ++at) {
    const std::int64_t from = std::max(first, at->first), until = std::min(end, at->first + at->count);
    if (from >= until) continue;
    const auto reader = open(at->shard);
    const Blocks& blocks = reader->blocks();
    std::int64_t offset = at->offset + (from - at->first) * each;
    const std::int64_t stop = at->offset + (until - at->first) * each;
    std::byte* out = to + (from - first) * each;
    while (offset < stop) {
      const std::int64_t block = blocks.at(offset),
                         number = std::min(blocks.at(stop - 1) + 1 - block, blocks_per_run(blocks.each));
      const std::span<const std::byte> bytes = reader->read(block, number, room);
      for (std::int64_t k = block; k < block + number; ++k)
        if (!reader->matches(
                k, bytes.subspan(blocks.offset(k) - blocks.offset(block), as_size(blocks.bytes(k)))))
          throw reader->mismatch(k, 1);
      const std::int64_t skipped = offset - blocks.offset(block),
                         taken = std::min(std::ssize(bytes) - skipped, stop - offset);
      std::memcpy(out, bytes.data() + skipped, taken);
      out += taken;
      offset += taken;
    }
  }
}

}  // namespace holdfast::checkpoint
