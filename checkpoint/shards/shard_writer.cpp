#include "checkpoint/shards/shard_writer.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/hash.hpp"
#include "checkpoint/index/vote.hpp"
#include "checkpoint/io/direct_file.hpp"
#include "checkpoint/shards/image_pass.hpp"
#include "checkpoint/shards/index_file.hpp"
#include "checkpoint/shards/read_back.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"

namespace holdfast::checkpoint {
namespace {

/// What rank `rank` writes.
std::vector<PieceSpan> not_empty(const WriterLayout& layout, int rank) {
  std::vector<PieceSpan> spans = layout.of_rank[rank];
  std::erase_if(spans, [](const PieceSpan& span) { return span.count == 0; });
  return spans;
}

std::int64_t bytes_of_all(const WriterLayout& layout, std::span<const LogicalTensor> tensors) {
  std::int64_t bytes = 0;
  for (const auto& spans : layout.of_rank)
    for (const PieceSpan& span : spans) bytes += bytes_of(span, tensors);
  return bytes;
}

bool is_there(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

void make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot create " + path.string(), errno);
}

}  // namespace

struct ShardWriter::Plan {
  fs::path checkpoints;
  int rank = 0, world = 0;
  WriteOptions options;
  ShardPlan shard;
  Manifest common;  ///< facts, tensors, generation; the point changes with each save
  std::vector<PieceSpan> spans;
  std::vector<std::int64_t> places;
  std::int64_t checkpoint_bytes = 0;
  AlignedBuffer metadata;  ///< the bytes [0, data_offset)
  AlignedBuffer again;     ///< for reading back
  ImagePass pass;
  std::string index;  ///< rank 0: bytes of index.h5
  WriteCost cost;

  Plan(int rank, const WriterLayout& layout, const std::vector<LogicalTensor>& tensors,
       const WriteOptions& options);
  std::size_t head_bytes() const { return as_size(shard.info.payload_offset - shard.info.data_offset); }
  fs::path make_temporary_folder() const;
  void write_shard(NewFile& file, std::span<std::byte> image, ShardInfo& info);
  void write_index(NewFile& file) const;
};

ShardWriter::Plan::Plan(int rank_, const WriterLayout& layout, const std::vector<LogicalTensor>& tensors,
                        const WriteOptions& options_)
    : rank(rank_),
      world(static_cast<int>(layout.of_rank.size())),
      options(options_),
      shard(plan_shard(rank, world, tensors, not_empty(layout, rank))),
      spans(not_empty(layout, rank)),
      metadata(shard.info.data_offset),
      again(read_back_bytes(shard.info, options.read_back)),
      pass(shard.info, tensors, options.threads, options.chunk_bytes) {
  std::memcpy(metadata.span().data(), shard.metadata.data(), shard.metadata.size());
  std::int64_t mine = 0;
  for (const StoredPiece& piece : shard.info.pieces) {
    places.push_back(piece.offset - shard.info.data_offset);
    mine += bytes_of(piece.span, tensors);
  }
  checkpoint_bytes = bytes_of_all(layout, tensors) + world * (shard.info.bytes - mine);
}

ShardWriter::ShardWriter(fs::path checkpoints, int rank, Generation generation,
                         std::vector<LogicalTensor> tensors, WriterLayout layout, Facts facts,
                         WriteOptions options) {
  expects(rank >= 0 && as_size(rank) < layout.of_rank.size(), "the writer's rank is in the layout");
  plan_ = std::make_unique<Plan>(rank, layout, tensors, options);
  Plan& plan = *plan_;
  plan.checkpoints = std::move(checkpoints);
  plan.common.generation = generation;
  plan.common.facts = std::move(facts);
  if (rank == 0) {
    plan.index = index_text(tensors, layout);
    plan.common.index = {index_file_name, static_cast<std::int64_t>(plan.index.size()), xxh3_128(plan.index)};
  }
  plan.common.tensors = std::move(tensors);
}

ShardWriter::~ShardWriter() = default;
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;

std::span<const std::int64_t> ShardWriter::places() const { return plan_->places; }
std::span<const PieceSpan> ShardWriter::spans() const { return plan_->spans; }
std::int64_t ShardWriter::file_bytes() const { return plan_->shard.info.bytes; }
std::int64_t ShardWriter::checkpoint_bytes() const { return plan_->checkpoint_bytes; }
WriteCost ShardWriter::last_cost() const { return plan_->cost; }
std::int64_t ShardWriter::image_bytes() const {
  return plan_->shard.info.bytes - plan_->shard.info.data_offset;
}

std::string ShardWriter::write(const RunPoint& point, std::span<std::byte> image) {
  Plan& plan = *plan_;
  expects(std::ssize(image) == image_bytes() &&
              reinterpret_cast<std::uintptr_t>(image.data()) % static_cast<std::uintptr_t>(page_bytes) == 0,
          "the image has its size and starts on a page");
  plan.cost = {};
  const auto start = Clock::now();
  const double cpu = thread_cpu_seconds();
  plan.common.point = point;
  const fs::path folder = plan.make_temporary_folder();
  ShardInfo info = plan.shard.info;
  NewFile shard(folder / info.file, info.bytes, plan.options.direct);
  plan.write_shard(shard, image, info);
  std::optional<NewFile> index;
  if (plan.rank == 0) {
    index.emplace(folder / plan.common.index.file, plan.common.index.bytes, false);
    plan.write_index(*index);
  }
  read_back(shard.path(), info, plan.shard.metadata, image.first(plan.head_bytes()), plan.options.read_back,
            point.step, plan.again.span());
  std::string vote = vote_text(plan.rank, plan.common, info, plan.pass.piece_digests());
  shard.keep();
  if (index) index->keep();
  plan.cost = {info.bytes, seconds_since(start),
               thread_cpu_seconds() - cpu + plan.pass.cpu_seconds_elsewhere(), shard.direct()};
  return vote;
}

/// Whoever finds no folder of this checkpoint yet asks for room for all of it; after that, everybody for
/// their own part.
fs::path ShardWriter::Plan::make_temporary_folder() const {
  make_folder(checkpoints);
  fs::path folder = temporary_path(checkpoints, common.point.step, common.generation);
  check_room(checkpoints, is_there(folder) ? shard.info.bytes : checkpoint_bytes);
  make_folder(folder);
  return folder;
}

/// Payload, head, and last of all the metadata: an unfinished shard is not an HDF5 file.
void ShardWriter::Plan::write_shard(NewFile& file, std::span<std::byte> image, ShardInfo& info) {
  const auto head = image.first(head_bytes());
  std::memset(head.data(), 0, head.size());
  const auto table = table_in(head, blocks_of(info).count());
  pass.run(image.subspan(head.size()), table, file);
  info.root = root_of(info, table);
  const std::string record = record_text({format_version, common.generation, common.point, rank, world,
                                          info.bytes, info.data_offset, info.payload_offset});
  std::memcpy(head.data(), record.data(), record.size());
  file.write(head, info.data_offset);
  file.write(metadata.span(), 0);
  file.finish();
}

void ShardWriter::Plan::write_index(NewFile& file) const {
  file.write(std::as_bytes(std::span(index)), 0);
  file.finish();
}

}  // namespace holdfast::checkpoint
