#include "checkpoint/shards/shard_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/io/crc32c.hpp"
#include "checkpoint/io/memory_file.hpp"
#include "checkpoint/shards/h5.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {
namespace {

using Words = std::array<std::int64_t, record_bytes / 8>;

/// The file that HDF5 lays out with `metadata_pages` at the front, and all else behind them without gaps.
/// Returns whether it did: metadata alone in front, at the start of a page, then the head, then the pieces.
bool lay_out(const MemoryFile& file, std::int64_t metadata_pages, int world,
             std::span<const LogicalTensor> tensors, int rank, ShardPlan& plan) {
  h5::FileSpace file_space{static_cast<std::uint64_t>(metadata_pages * page_bytes)};
  file_space.aligned_from = file_space.alignment = 1;
  h5::Id h5_file = h5::create_file(file.path(), file_space);
  h5::write_attribute(h5_file.get(), "holdfast_format", format_version);
  h5::write_attribute(h5_file.get(), "rank", rank);
  h5::write_attribute(h5_file.get(), "world", world);
  bool right = true;
  {
    std::vector<PieceSpan> spans;
    std::int64_t payload = 0;
    for (const StoredPiece& piece : plan.pieces) {
      spans.push_back(piece.span);
      payload += bytes_of(piece.span, tensors);
    }
    ShardInfo& info = plan.info;
    const std::int64_t head = head_bytes((rounded_to_pages(payload) + block_bytes - 1) / block_bytes);
    h5::ContiguousMaker maker(h5_file.get());
    info.data_offset = maker.make(record_name, h5::Element::int64, head / 8);
    info.payload_offset = info.data_offset + head;
    info.bytes = rounded_to_pages(info.payload_offset + payload);
    plan.pieces = placed(tensors, spans, info.payload_offset);
    std::vector<const StoredPiece*> by_offset;
    for (const StoredPiece& piece : plan.pieces) by_offset.push_back(&piece);
    std::sort(by_offset.begin(), by_offset.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (const StoredPiece* piece : by_offset) {
      const LogicalTensor& tensor = tensors[piece->span.tensor];
      right &= piece->offset == maker.make(dataset_name(tensor, piece->span.first),
                                           h5::element_of(tensor.type), piece->span.count);
    }
  }
  h5::close_file(std::move(h5_file));
  return right && plan.info.data_offset % page_bytes == 0 && file.bytes() <= plan.info.bytes &&
         file.zero_from(plan.info.data_offset);
}

Words words_of(const Record& r) {
  Words words{};
  std::memcpy(&words[0], "HOLDFAST", 8);
  words[1] = r.version;
  words[2] = r.point.step;
  words[3] = r.generation.term;
  words[4] = r.generation.attempt;
  words[5] = r.rank;
  words[6] = r.world;
  words[7] = r.point.tokens;
  words[8] = r.point.samples;
  words[9] = r.bytes;
  words[10] = r.data_offset;
  words[11] = r.payload_offset;
  words[15] = crc32c(words.data(), sizeof words - 8);
  return words;
}

}  // namespace

ShardPlan plan_shard(int rank, int world, std::span<const LogicalTensor> tensors,
                     std::span<const PieceSpan> spans) {
  ShardPlan plan;
  plan.info.file = shard_file_name(rank);
  std::int64_t name_bytes = 0;
  for (const PieceSpan& span : spans) {
    if (span.count == 0) continue;
    plan.pieces.push_back({span, 0});
    name_bytes += static_cast<std::int64_t>(dataset_name(tensors[span.tensor], span.first).size());
  }
  // A first guess at the metadata; what HDF5 finds too small goes behind the data, and we ask again.
  std::int64_t pages = 1 + (name_bytes + 320 * static_cast<std::int64_t>(plan.pieces.size())) / page_bytes;
  for (int attempt = 0; attempt < 8; ++attempt, pages *= 2) {
    const MemoryFile file;
    if (!lay_out(file, pages, world, tensors, rank, plan)) continue;
    plan.metadata = file.read(0, plan.info.data_offset);
    plan.info.metadata_crc32c = crc32c(plan.metadata.data(), plan.metadata.size());
    return plan;
  }
  throw Error(Exit::runtime, "cannot lay out " + plan.info.file,
              "HDF5 does not keep its metadata in one place");
}

std::string dataset_name(const LogicalTensor& tensor, std::int64_t first) {
  return tensor.name + "@" + std::to_string(first);
}

std::int64_t record_elements(const ShardInfo& shard) {
  return (shard.has_head() ? shard.payload_offset - shard.data_offset : record_bytes) / 8;
}

Record record_of(const Manifest& manifest, std::size_t rank) {
  const ShardInfo& shard = manifest.shards.at(rank);
  return {manifest.version,
          manifest.generation,
          manifest.point,
          static_cast<int>(rank),
          static_cast<int>(manifest.shards.size()),
          shard.bytes,
          shard.data_offset,
          shard.payload_offset};
}

std::string record_text(const Record& record) {
  const Words words = words_of(record);
  return {reinterpret_cast<const char*>(words.data()), sizeof words};
}

std::string wrong_record(std::string_view bytes, const Record& expected) {
  Words words{};
  if (bytes.size() != sizeof words) return "its record is cut";
  std::memcpy(words.data(), bytes.data(), sizeof words);
  if (words == words_of(expected)) return {};
  if (words[15] != static_cast<std::int64_t>(crc32c(words.data(), sizeof words - 8)) ||
      std::memcmp(&words[0], "HOLDFAST", 8) != 0)
    return "its record is damaged";
  return "it is of step " + std::to_string(words[2]) + ", generation " + std::to_string(words[3]) + "-" +
         std::to_string(words[4]) + ", rank " + std::to_string(words[5]) + " of " + std::to_string(words[6]);
}

std::span<std::uint32_t> table_in(std::span<std::byte> head, std::int64_t blocks) {
  expects(std::ssize(head) == head_bytes(blocks), "the head is that of so many blocks");
  return {reinterpret_cast<std::uint32_t*>(head.data() + record_bytes), as_size(blocks)};
}

std::span<const std::uint32_t> table_in(std::span<const std::byte> head, std::int64_t blocks) {
  expects(std::ssize(head) == head_bytes(blocks), "the head is that of so many blocks");
  return {reinterpret_cast<const std::uint32_t*>(head.data() + record_bytes), as_size(blocks)};
}

std::string wrong_head(std::span<const std::byte> head, const Record& expected, const ShardInfo& shard) {
  const std::int64_t blocks = blocks_of(shard).count();
  if (std::ssize(head) != head_bytes(blocks)) return "its head is cut";
  std::string wrong =
      wrong_record({reinterpret_cast<const char*>(head.data()), as_size(record_bytes)}, expected);
  if (!wrong.empty()) return wrong;
  if (root_of(shard, table_in(head, blocks)) != shard.root)
    return "its block table is not the one that was written";
  const std::span<const std::byte> rest = head.subspan(record_bytes + 4 * blocks);
  const auto zero = [](std::byte b) { return b == std::byte{0}; };
  return std::all_of(rest.begin(), rest.end(), zero) ? "" : "its head is damaged behind the block table";
}

}  // namespace holdfast::checkpoint
