#include "checkpoint/shard_file.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "checkpoint/catalog.hpp"
#include "checkpoint/crc32c.hpp"
#include "checkpoint/h5.hpp"
#include "checkpoint/memory_file.hpp"

namespace holdfast::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so are the writers");

constexpr std::int64_t page = 4096;
using Words = std::array<std::int64_t, record_bytes / 8>;

/// The file that HDF5 lays out when its metadata gets `metadata_pages` at the head.
void lay_out(const MemoryFile& file, std::int64_t metadata_pages, int rank, int world,
             std::span<const LogicalTensor> tensors, ShardInfo& info) {
  h5::Id h5_file = h5::create_file(file.path(), static_cast<std::uint64_t>(metadata_pages * page));
  h5::write_attribute(h5_file.get(), "holdfast_format", format_version);
  h5::write_attribute(h5_file.get(), "rank", rank);
  h5::write_attribute(h5_file.get(), "world", world);
  info.data_offset = h5::offset_of(
      h5::create_contiguous(h5_file.get(), record_name, h5::Element::int64, record_bytes / 8).get());
  for (StoredPiece& piece : info.pieces) {
    const LogicalTensor& tensor = tensors[static_cast<std::size_t>(piece.span.tensor)];
    piece.offset = h5::offset_of(h5::create_contiguous(h5_file.get(), dataset_name(tensor, piece.span.first),
                                                       h5::element_of(tensor.type), piece.span.count)
                                     .get());
  }
  h5::close_file(std::move(h5_file));
  info.bytes = file.bytes();
}

Words words_of(const Record& r) {
  Words words{};
  std::memcpy(&words[0], "HOLDFAST", 8);
  words[1] = r.version;
  words[2] = r.point.step, words[3] = r.generation.epoch, words[4] = r.generation.attempt;
  words[5] = r.rank, words[6] = r.world;
  words[7] = r.point.tokens, words[8] = r.point.samples;
  words[9] = r.bytes, words[10] = r.data_offset;
  words[15] = crc32c(words.data(), sizeof words - 8);
  return words;
}

}  // namespace

ShardPlan plan_shard(int rank, int world, std::span<const LogicalTensor> tensors,
                     std::span<const PieceSpan> spans) {
  ShardPlan plan;
  plan.info.file = shard_file_name(rank);
  std::size_t name_bytes = 0;
  for (const PieceSpan& span : spans) {
    if (span.count == 0) continue;
    plan.info.pieces.push_back({span, 0});
    name_bytes += dataset_name(tensors[static_cast<std::size_t>(span.tensor)], span.first).size();
  }
  // A first guess at the metadata; when HDF5 needs more it goes behind the data, and we ask again with twice
  // as much.
  std::int64_t pages = 1 + static_cast<std::int64_t>(name_bytes + 320 * plan.info.pieces.size()) / page;
  for (int attempt = 0; attempt < 12; ++attempt, pages *= 2) {
    const MemoryFile file;
    lay_out(file, pages, rank, world, tensors, plan.info);
    if (plan.info.data_offset % page != 0 || !file.zero_from(plan.info.data_offset)) continue;
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

}  // namespace holdfast::checkpoint
