#include "checkpoint/shard_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "checkpoint/crc32c.hpp"
#include "checkpoint/hash.hpp"
#include "checkpoint/index_file.hpp"
#include "checkpoint/shard_file.hpp"
#include "checkpoint/vote.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

/// Bytes of the data span that come from memory; what lies between is zero.
struct Extent {
  std::int64_t offset, bytes;
  const char* from;
};

/// A new file of known size that removes itself unless it was finished: a failed save frees its space at
/// once.
class NewFile {
 public:
  NewFile(fs::path path, std::int64_t bytes)
      : path_(std::move(path)), fd_(files::open(path_, O_WRONLY | O_CREAT | O_EXCL)) {
    // Room for everything before the first byte. Where the file system cannot promise that, the writes will
    // tell.
    int result = 0;
    do result = ::fallocate(fd_.get(), 0, 0, bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) result = ::ftruncate(fd_.get(), bytes);
    if (result != 0) {
      const int reason = errno;
      ::unlink(path_.c_str());
      throw system_error("cannot make room for " + path_.string(), reason);
    }
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_) ::unlink(path_.c_str());
  }
  int fd() const { return fd_.get(); }
  const fs::path& path() const { return path_; }
  /// fsync and close, both checked. Neither is ever tried again: the kernel may have dropped the pages.
  void finish() {
    files::sync(fd_.get(), path_);
    const int fd = fd_.release();
    if (::close(fd) == 0) return;
    const int reason = errno;
    ::unlink(path_.c_str());
    throw system_error("cannot close " + path_.string(), reason);
  }

 private:
  fs::path path_;
  files::Fd fd_;
};

/// Starts the disk on what was just written, so that the final fsync finds little left to do. Only a hint.
void start_writeback(int fd, std::int64_t first, std::int64_t bytes) {
  (void)::sync_file_range(fd, first, bytes, SYNC_FILE_RANGE_WRITE);
}

}  // namespace

struct ShardWriter::Plan {
  fs::path checkpoints;
  int rank = 0, world = 0;
  State state;
  Manifest common;  ///< facts, tensors, generation; point and digests change with each save
  ShardPlan shard;
  WriterLayout layout;  ///< rank 0, until the index is made
  std::string index;    ///< rank 0: bytes of index.h5, made at the first save

  void write_shard(const fs::path& folder, ShardInfo& info) const;
  void write_index(const fs::path& folder);
};

ShardWriter::ShardWriter(fs::path checkpoints, int rank, Generation generation, State pieces,
                         WriterLayout layout, Facts facts)
    : plan_(std::make_unique<Plan>()) {
  expects(rank >= 0 && static_cast<std::size_t>(rank) < layout.of_rank.size(),
          "the writer's rank is in the layout");
  const auto not_empty = [](const auto& span) { return span.count > 0; };
  std::vector<PieceSpan> mine;
  std::copy_if(layout.of_rank[static_cast<std::size_t>(rank)].begin(),
               layout.of_rank[static_cast<std::size_t>(rank)].end(), std::back_inserter(mine), not_empty);
  std::erase_if(pieces.pieces, [](const PieceView& piece) { return piece.count == 0; });
  const bool same =
      std::equal(mine.begin(), mine.end(), pieces.pieces.begin(), pieces.pieces.end(),
                 [](const PieceSpan& span, const PieceView& piece) { return span == piece.span(); });
  expects(same, "the pieces are those of the layout");

  Plan& plan = *plan_;
  plan.checkpoints = std::move(checkpoints);
  plan.rank = rank, plan.world = static_cast<int>(layout.of_rank.size());
  plan.shard = plan_shard(rank, plan.world, pieces.tensors, mine);
  plan.common.generation = generation;
  plan.common.facts = std::move(facts);
  plan.common.tensors = pieces.tensors;
  plan.state = std::move(pieces);
  if (rank == 0) plan.layout = std::move(layout);
}

ShardWriter::~ShardWriter() = default;
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;

std::int64_t ShardWriter::file_bytes() const { return plan_->shard.info.bytes; }

std::string ShardWriter::write(const RunPoint& point, std::span<const std::uint64_t> tensor_digests) {
  Plan& plan = *plan_;
  expects(tensor_digests.size() == plan.common.tensors.size(), "one digest per tensor");
  plan.common.point = point;
  plan.common.digests.assign(tensor_digests.begin(), tensor_digests.end());
  const fs::path folder = temporary_path(plan.checkpoints, point.step, plan.common.generation);
  for (const fs::path& path : {plan.checkpoints, folder})
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      throw system_error("cannot create " + path.string(), errno);
  ShardInfo info = plan.shard.info;
  plan.write_shard(folder, info);
  if (plan.rank == 0) plan.write_index(folder);
  files::sync_folder(folder);
  return vote_text(plan.rank, plan.common, info);
}

void ShardWriter::Plan::write_shard(const fs::path& folder, ShardInfo& info) const {
  const std::string record = record_text(
      {format_version, common.generation, common.point, rank, world, info.bytes, info.data_offset});
  std::vector<Extent> extents{{info.data_offset, record_bytes, record.data()}};
  for (std::size_t i = 0; i < info.pieces.size(); ++i)
    extents.push_back({info.pieces[i].offset, bytes_of(info.pieces[i].span, state.tensors),
                       static_cast<const char*>(state.pieces[i].data)});
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });

  NewFile file(folder / info.file, info.bytes);
  std::vector<char> block(static_cast<std::size_t>(std::min(block_bytes, info.bytes - info.data_offset)));
  auto next = extents.begin();
  for (std::int64_t first = info.data_offset; first < info.bytes; first += block_bytes) {
    const std::int64_t end = std::min(first + block_bytes, info.bytes);
    std::int64_t at = first;
    while (at < end) {
      char* const to = block.data() + (at - first);
      const std::int64_t gap_end = next == extents.end() ? end : std::min(next->offset, end);
      if (at < gap_end) {
        std::memset(to, 0, static_cast<std::size_t>(gap_end - at));
        at = gap_end;
        continue;
      }
      const std::int64_t bytes = std::min(next->offset + next->bytes, end) - at;
      std::memcpy(to, next->from + (at - next->offset), static_cast<std::size_t>(bytes));
      at += bytes;
      if (at == next->offset + next->bytes) ++next;
    }
    const auto bytes = static_cast<std::size_t>(end - first);
    info.block_crc32c.push_back(crc32c(block.data(), bytes));
    files::write_all(file.fd(), block.data(), bytes, static_cast<std::uint64_t>(first), file.path());
    start_writeback(file.fd(), first, end - first);
  }
  info.root = root_of(info);
  files::write_all(file.fd(), shard.metadata.data(), shard.metadata.size(), 0, file.path());
  file.finish();
}

void ShardWriter::Plan::write_index(const fs::path& folder) {
  if (index.empty()) {
    index = index_text(common.tensors, layout);
    layout = {};
    common.index = {index_file_name, static_cast<std::int64_t>(index.size()), xxh3_128(index)};
  }
  NewFile file(folder / common.index.file, common.index.bytes);
  files::write_all(file.fd(), index.data(), index.size(), 0, file.path());
  file.finish();
}

}  // namespace holdfast::checkpoint
