// What must hold between the numbers of a manifest before any of them is used.
#include <algorithm>
#include <bit>
#include <string>
#include <unordered_set>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/hash.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "block tables are little-endian, and so are we");

void prove_name(const std::string& name) {
  const bool clean = std::none_of(name.begin(), name.end(),
                                  [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '@'; });
  bool components = !name.empty() && name.size() <= 1024;
  for (std::size_t at = 0; components && at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = std::string_view(name).substr(at, end - at);
    components = !part.empty() && part != "." && part != "..";
    at = end + 1;
  }
  if (!clean || !components) refuse_manifest("\"" + name + "\" is not a tensor name");
}

void prove_tensors(const Manifest& m) {
  if (m.digests.size() != m.tensors.size()) refuse_manifest("there is not one digest per tensor");
  std::unordered_set<std::string> seen;
  for (const LogicalTensor& tensor : m.tensors) {
    prove_name(tensor.name);
    if (!seen.insert(tensor.name).second) refuse_manifest("tensor " + tensor.name + " is named twice");
  }
  if (m.state_digest != state_digest(m.tensors, m.digests))
    refuse_manifest("the state digest does not follow from those of the tensors");
}

/// Where the extents of a shard lie, up to version 3: metadata, then record and pieces under the blocks.
void prove_extents_to_3(const ShardInfo& shard) {
  if (shard.bytes > max_elements || shard.bytes - record_bytes < shard.data_offset)
    refuse_manifest(shard.file + " cannot have " + std::to_string(shard.bytes) + " bytes");
  const std::int64_t blocks = blocks_of(shard).count();
  if (static_cast<std::int64_t>(shard.block_crc32c.size()) != blocks)
    refuse_manifest(shard.file + " has " + std::to_string(blocks) + " blocks and " +
                    std::to_string(shard.block_crc32c.size()) + " block checksums");
  if (shard.root != root_of(shard, shard.block_crc32c))
    refuse_manifest(shard.file + ": the root does not follow from the block checksums");
}

/// Since version 4: metadata, head, payload. The root is compared with the table when the head is read.
void prove_extents(const ShardInfo& shard) {
  if (shard.bytes > max_elements || shard.bytes % page_bytes != 0 || shard.bytes < shard.payload_offset)
    refuse_manifest(shard.file + " cannot have " + std::to_string(shard.bytes) + " bytes");
  if (shard.payload_offset <= shard.data_offset ||
      shard.payload_offset - shard.data_offset != head_bytes(blocks_of(shard).count()))
    refuse_manifest(shard.file + ": the payload cannot start at " + std::to_string(shard.payload_offset));
}

/// Sizes and root; up to version 4 also that pieces lie inside the data span, apart from each other.
void prove_shard(const Manifest& m, std::size_t rank) {
  const ShardInfo& shard = m.shards[rank];
  if (shard.file != shard_file_name(static_cast<int>(rank)))
    refuse_manifest("shard " + std::to_string(rank) + " must be in " +
                    shard_file_name(static_cast<int>(rank)) + ", not \"" + shard.file + "\"");
  if (shard.data_offset <= 0 || shard.data_offset % page_bytes != 0)
    refuse_manifest(shard.file + ": the data cannot start at " + std::to_string(shard.data_offset));
  if (m.version < 4)
    prove_extents_to_3(shard);
  else
    prove_extents(shard);
  if (m.version >= 5) {
    const std::int64_t pieces = payload_bytes(m.tensors, m.layout, static_cast<int>(rank));
    if (shard.bytes != rounded_to_pages(shard.payload_offset + pieces))
      refuse_manifest(shard.file + " cannot have " + std::to_string(shard.bytes) +
                      " bytes: its pieces have " + std::to_string(pieces));
    return;
  }
  const std::int64_t first_piece = m.version < 4 ? shard.data_offset + record_bytes : shard.payload_offset;

  std::vector<const StoredPiece*> by_offset;
  for (const StoredPiece& piece : shard.pieces) {
    const PieceSpan& span = piece.span;
    if (span.tensor < 0 || as_size(span.tensor) >= m.tensors.size())
      refuse_manifest(shard.file + " has a piece of tensor " + std::to_string(span.tensor) +
                      ", which is not listed");
    const LogicalTensor& tensor = m.tensors[span.tensor];
    if (span.count <= 0 || span.first < 0 || span.count > tensor.elements() ||
        span.first > tensor.elements() - span.count)
      refuse_manifest(shard.file + " has a piece outside " + tensor.name);
    const std::int64_t bytes = bytes_of(span, m.tensors);
    if (piece.offset % bytes_of(tensor.type) != 0 || piece.offset < first_piece || bytes > shard.bytes ||
        piece.offset > shard.bytes - bytes)
      refuse_manifest(shard.file + ": a piece of " + tensor.name + " lies outside the data");
    by_offset.push_back(&piece);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i)
    if (by_offset[i - 1]->offset + bytes_of(by_offset[i - 1]->span, m.tensors) > by_offset[i]->offset)
      refuse_manifest(shard.file + ": two pieces share bytes at " + std::to_string(by_offset[i]->offset));
}

/// Every element of every tensor exactly once, up to version 4; since then prove_layout() does it.
void prove_coverage(const Manifest& m) {
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> spans(m.tensors.size());
  for (const ShardInfo& shard : m.shards)
    for (const StoredPiece& piece : shard.pieces)
      spans[piece.span.tensor].emplace_back(piece.span.first, piece.span.count);
  for (std::size_t t = 0; t < spans.size(); ++t) {
    std::sort(spans[t].begin(), spans[t].end());
    std::int64_t next = 0;
    for (const auto& [first, count] : spans[t]) {
      if (first > next)
        refuse_manifest("elements " + std::to_string(next) + " to " + std::to_string(first - 1) + " of " +
                        m.tensors[t].name + " are stored nowhere");
      if (first < next)
        refuse_manifest("element " + std::to_string(first) + " of " + m.tensors[t].name + " is stored twice");
      next = first + count;
    }
    if (next != m.tensors[t].elements())
      refuse_manifest("elements from " + std::to_string(next) + " of " + m.tensors[t].name +
                      " are stored nowhere");
  }
}

void append(std::string& bytes, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
}

}  // namespace

void prove(const Manifest& m) {
  prove_tensors(m);
  if (m.shards.empty()) refuse_manifest("there are no shards");
  if (m.version >= 5) {
    prove_layout(m.tensors, m.layout);
    if (as_size(m.layout.writers()) != m.shards.size())
      refuse_manifest("there are " + std::to_string(m.shards.size()) + " shards of " +
                      std::to_string(m.layout.writers()) + " writers");
  }
  for (std::size_t rank = 0; rank < m.shards.size(); ++rank) prove_shard(m, rank);
  if (m.version >= 5) return;
  if (!m.index || m.index->file != index_file_name)
    refuse_manifest(std::string("the index must be in ") + index_file_name);
  prove_coverage(m);
}

std::string root_of(const ShardInfo& shard, std::span<const std::uint32_t> table) {
  std::string bytes;
  append(bytes, static_cast<std::uint64_t>(shard.bytes), 8);
  append(bytes, static_cast<std::uint64_t>(shard.data_offset), 8);
  if (shard.has_head()) append(bytes, static_cast<std::uint64_t>(shard.payload_offset), 8);
  append(bytes, shard.metadata_crc32c, 4);
  return xxh3_128(bytes, {reinterpret_cast<const char*>(table.data()), table.size_bytes()});
}

Blocks blocks_of(const ShardInfo& shard) {
  if (shard.has_head()) return {shard.payload_offset, block_bytes, shard.bytes};
  return {shard.data_offset, block_bytes_to_3, shard.bytes};
}

std::int64_t rounded_to_pages(std::int64_t used) { return (used + page_bytes - 1) / page_bytes * page_bytes; }

std::int64_t head_bytes(std::int64_t blocks) { return rounded_to_pages(record_bytes + 4 * blocks); }

std::int64_t total_bytes(const Manifest& m) {
  std::int64_t bytes = 0;
  for (const ShardInfo& shard : m.shards) bytes += shard.bytes;
  return bytes;
}

}  // namespace holdfast::checkpoint
