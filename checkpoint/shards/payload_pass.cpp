#include "checkpoint/shards/payload_pass.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/io/crc32c.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/parallel.hpp"

namespace holdfast::checkpoint {

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

PayloadPass::PayloadPass(const ShardInfo& shard, std::span<const StoredPiece> pieces,
                         std::span<const LogicalTensor> tensors, int threads, std::int64_t chunk_bytes)
    : payload_offset_(shard.payload_offset),
      payload_bytes_(shard.bytes - shard.payload_offset),
      chunk_bytes_(chunk_bytes) {
  expects(threads > 0 && chunk_bytes > 0 && chunk_bytes % block_bytes == 0,
          "there is a thread, and chunks are whole blocks");
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const StoredPiece& piece = pieces[i];
    const std::int64_t from = piece.offset - shard.payload_offset;
    placed_.push_back(
        {from, from + bytes_of(piece.span, tensors), piece.span.first, tensors[piece.span.tensor].type, i});
  }
  std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) { return a.from < b.from; });
  const std::int64_t chunks = std::max<std::int64_t>(1, (payload_bytes_ + chunk_bytes - 1) / chunk_bytes);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(threads, chunks); ++i)
    workers_.push_back(
        {AlignedBuffer(std::min(chunk_bytes, payload_bytes_)), std::vector<std::uint64_t>(pieces.size())});
}

void PayloadPass::run(std::span<const std::byte* const> pieces, std::span<std::uint32_t> table,
                      NewFile& file) {
  expects(pieces.size() == placed_.size(), "every piece of the shard lies somewhere");
  for (Worker& worker : workers_) {
    std::fill(worker.digests.begin(), worker.digests.end(), 0);
    worker.cpu_seconds = 0;
  }
  const std::int64_t chunks = (payload_bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
  parallel_for(as_size(chunks), static_cast<int>(workers_.size()), [&](int number) {
    Worker& worker = workers_[number];
    return [&, begun = thread_cpu_seconds()](std::size_t chunk) {
      const std::int64_t from = static_cast<std::int64_t>(chunk) * chunk_bytes_;
      const std::int64_t to = std::min(from + chunk_bytes_, payload_bytes_);
      stage(pieces, table, from, to, worker);
      file.write(worker.staging.span().first(as_size(to - from)), payload_offset_ + from);
      worker.cpu_seconds = thread_cpu_seconds() - begun;
    };
  });
  cpu_seconds_ = 0;
  for (std::size_t i = 1; i < workers_.size(); ++i) {
    cpu_seconds_ += workers_[i].cpu_seconds;
    for (std::size_t piece = 0; piece < workers_[i].digests.size(); ++piece)
      workers_.front().digests[piece] += workers_[i].digests[piece];
  }
}

/// Block by block, so that checksum and digest find in the cache what was just copied; and of the copy, so
/// that they are of the bytes that are written.
void PayloadPass::stage(std::span<const std::byte* const> pieces, std::span<std::uint32_t> table,
                        std::int64_t from, std::int64_t to, Worker& worker) {
  auto piece = std::upper_bound(placed_.begin(), placed_.end(), from,
                                [](std::int64_t at, const Placed& p) { return at < p.to; });
  for (std::int64_t at = from; at < to; at += block_bytes) {
    const std::int64_t end = std::min(at + block_bytes, to);
    std::byte* const block = worker.staging.span().data() + (at - from);
    std::int64_t filled = at;  // between pieces there are zeros
    for (; piece != placed_.end() && piece->from < end; ++piece) {
      const std::int64_t first = std::max(at, piece->from), last = std::min(end, piece->to);
      const std::int64_t element = bytes_of(piece->type);
      std::byte* const copy = block + (first - at);
      std::memset(block + (filled - at), 0, as_size(first - filled));
      std::memcpy(copy, pieces[piece->piece] + (first - piece->from), as_size(last - first));
      worker.digests[piece->piece] +=
          digest_part(static_cast<std::uint64_t>(piece->first + (first - piece->from) / element), copy,
                      piece->type, (last - first) / element);
      filled = last;
      if (piece->to > end) break;  // goes on in the next block
    }
    std::memset(block + (filled - at), 0, as_size(end - filled));
    table[at / block_bytes] = crc32c(block, as_size(end - at));
  }
}

}  // namespace holdfast::checkpoint
