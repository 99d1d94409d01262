#include "checkpoint/shards/shard_writer.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/vote.hpp"
#include "checkpoint/io/direct_file.hpp"
#include "checkpoint/shards/payload_pass.hpp"
#include "checkpoint/shards/read_back.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

void make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0750) != 0 && errno != EEXIST)
    throw system_error("cannot create " + path.string(), errno);
}

}  // namespace

struct ShardWriter::Plan {
  fs::path checkpoints;
  int rank = 0, world = 0;
  WriteOptions options;
  std::vector<PieceSpan> spans;
  ShardPlan shard;
  Manifest common;  ///< facts, tensors, layout, generation; the point changes with each save
  std::int64_t checkpoint_bytes = 0;
  AlignedBuffer metadata;  ///< the bytes [0, data_offset)
  AlignedBuffer head;      ///< the bytes [data_offset, payload_offset) of the newest save
  AlignedBuffer again;     ///< for reading back
  PayloadPass pass;
  WriteCost cost;

  Plan(int rank, const WriterLayout& layout, const std::vector<LogicalTensor>& tensors,
       const WriteOptions& options);
  std::vector<const std::byte*> memory_of(std::span<const PieceView> pieces) const;
  fs::path make_temporary_folder() const;
  void write_shard(NewFile& file, std::span<const PieceView> pieces, ShardInfo& info);
};

ShardWriter::Plan::Plan(int rank_, const WriterLayout& layout, const std::vector<LogicalTensor>& tensors,
                        const WriteOptions& options_)
    : rank(rank_),
      world(layout.writers()),
      options(options_),
      spans(spans_of(tensors, layout, rank)),
      shard(plan_shard(rank, world, tensors, spans)),
      metadata(shard.info.data_offset),
      head(shard.info.payload_offset - shard.info.data_offset),
      again(read_back_bytes(shard.info, options.read_back)),
      pass(shard.info, shard.pieces, tensors, options.threads, options.chunk_bytes) {
  std::memcpy(metadata.span().data(), shard.metadata.data(), shard.metadata.size());
  for (const LogicalTensor& tensor : tensors) checkpoint_bytes += tensor.elements() * bytes_of(tensor.type);
  checkpoint_bytes += world * (shard.info.bytes - payload_bytes(tensors, layout, rank));
}

ShardWriter::ShardWriter(fs::path checkpoints, int rank, Generation generation,
                         std::vector<LogicalTensor> tensors, WriterLayout layout, Facts facts,
                         WriteOptions options) {
  expects(rank >= 0 && rank < layout.writers(), "the writer's rank is in the layout");
  prove_layout(tensors, layout);
  plan_ = std::make_unique<Plan>(rank, layout, tensors, options);
  Plan& plan = *plan_;
  plan.checkpoints = std::move(checkpoints);
  plan.common.generation = generation;
  plan.common.facts = std::move(facts);
  plan.common.tensors = std::move(tensors);
  plan.common.layout = std::move(layout);
}

ShardWriter::~ShardWriter() = default;
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;

std::span<const PieceSpan> ShardWriter::spans() const { return plan_->spans; }
std::int64_t ShardWriter::file_bytes() const { return plan_->shard.info.bytes; }
std::int64_t ShardWriter::checkpoint_bytes() const { return plan_->checkpoint_bytes; }
WriteCost ShardWriter::last_cost() const { return plan_->cost; }

std::string ShardWriter::write(const RunPoint& point, std::span<const PieceView> pieces) {
  Plan& plan = *plan_;
  plan.cost = {};
  const auto start = Clock::now();
  const double cpu = thread_cpu_seconds();
  plan.common.point = point;
  const fs::path folder = plan.make_temporary_folder();
  ShardInfo info = plan.shard.info;
  NewFile shard(folder / info.file, info.bytes, plan.options.direct);
  plan.write_shard(shard, pieces, info);
  read_back(shard.path(), info, plan.shard.metadata, plan.head.span(), plan.options.read_back, point.step,
            plan.again.span());
  std::string vote = vote_text(plan.rank, plan.common, info, plan.pass.piece_digests());
  shard.keep();
  plan.cost = {info.bytes, seconds_since(start),
               thread_cpu_seconds() - cpu + plan.pass.cpu_seconds_elsewhere(), shard.direct()};
  return vote;
}

/// Whoever finds no folder of this checkpoint yet asks for room for all of it; after that, everybody for
/// their own part.
fs::path ShardWriter::Plan::make_temporary_folder() const {
  make_folder(checkpoints);
  fs::path folder = temporary_path(checkpoints, common.point.step, common.generation);
  check_room(checkpoints, files::is_there(folder) ? shard.info.bytes : checkpoint_bytes);
  make_folder(folder);
  return folder;
}

std::vector<const std::byte*> ShardWriter::Plan::memory_of(std::span<const PieceView> pieces) const {
  std::vector<const std::byte*> memory;
  for (const PieceView& piece : pieces) {
    if (piece.count == 0) continue;
    expects(memory.size() < spans.size() && piece.span() == spans[memory.size()],
            "the pieces are those of the writer");
    memory.push_back(static_cast<const std::byte*>(piece.data));
  }
  return memory;
}

/// Payload, head, and last of all the metadata: an unfinished shard is not an HDF5 file.
void ShardWriter::Plan::write_shard(NewFile& file, std::span<const PieceView> pieces, ShardInfo& info) {
  const auto bytes = head.span();
  std::memset(bytes.data(), 0, bytes.size());
  const auto table = table_in(bytes, blocks_of(info).count());
  pass.run(memory_of(pieces), table, file);
  info.root = root_of(info, table);
  const std::string record = record_text({format_version, common.generation, common.point, rank, world,
                                          info.bytes, info.data_offset, info.payload_offset});
  std::memcpy(bytes.data(), record.data(), record.size());
  file.write(bytes, info.data_offset);
  file.write(metadata.span(), 0);
  file.finish();
}

}  // namespace holdfast::checkpoint
