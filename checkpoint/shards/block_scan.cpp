#include "checkpoint/shards/block_scan.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "src/base/parallel.hpp"

namespace holdfast::checkpoint {
namespace {

class Scan {
 public:
  Scan(const fs::path& step_dir, const Manifest& manifest, std::span<const BlockRun> runs,
       const BlockUse& use)
      : step_dir_(step_dir), manifest_(manifest), runs_(runs), use_(use) {}

  std::int64_t run() {
    parallel_for(runs_.size(), scan_workers, [this](int worker) {
      return [this, worker, room = std::make_shared<AlignedBuffer>(largest_run())](std::size_t run) {
        read(worker, run, room->span());
      };
    });
    return bytes_read_;
  }

 private:
  /// One that is being read. Shards are opened when their first run comes, and closed with the last of those
  /// who read them: thousands of shards need no thousands of open files.
  struct Open {
    std::mutex lock;  ///< while one opens, others that need the same shard wait here
    std::optional<std::size_t> shard;
    std::shared_ptr<const ShardReader> reader;
    std::exception_ptr why_not;
  };

  std::int64_t largest_run() const {
    std::int64_t largest = 0;
    for (const BlockRun& run : runs_)
      largest = std::max(largest, run.count * blocks_of(manifest_.shards[run.shard]).each);
    return largest;
  }

  std::shared_ptr<const ShardReader> open(std::size_t shard) {
    Open& open = open_[shard % open_.size()];
    const std::scoped_lock hold(open.lock);
    if (open.shard != shard) {
      open.shard = shard;
      open.reader = nullptr;
      open.why_not = nullptr;
      try {
        open.reader = std::make_shared<const ShardReader>(step_dir_, manifest_, shard);
        add_bytes(open.reader->head_bytes_read());
      } catch (...) {
        open.why_not = std::current_exception();
      }
    }
    if (open.why_not) std::rethrow_exception(open.why_not);
    return open.reader;
  }

  void read(int worker, std::size_t index, std::span<std::byte> room) {
    const BlockRun& run = runs_[index];
    try {
      const auto reader = open(run.shard);
      const std::span<const std::byte> bytes = reader->read(run.first, run.count, room);
      add_bytes(static_cast<std::int64_t>(bytes.size()));
      hand_out(worker, index, *reader, bytes);
    } catch (const Damaged& why) {
      if (!use_.damaged) throw;
      use_.damaged(index, run.first, run.count, why);
    }
  }

  /// Stretches of blocks that match, and of blocks that do not.
  void hand_out(int worker, std::size_t index, const ShardReader& reader, std::span<const std::byte> bytes) {
    const BlockRun& run = runs_[index];
    const Blocks& blocks = reader.blocks();
    const auto part = [&](std::int64_t from, std::int64_t to) {
      const std::int64_t first = blocks.offset(from) - blocks.offset(run.first);
      const std::int64_t last = blocks.offset(to - 1) + blocks.bytes(to - 1) - blocks.offset(run.first);
      return bytes.subspan(first, last - first);
    };
    const std::int64_t end = run.first + run.count;
    for (std::int64_t from = run.first; from < end;) {
      const bool good = reader.matches(from, part(from, from + 1));
      std::int64_t to = from + 1;
      while (to < end && reader.matches(to, part(to, to + 1)) == good) ++to;
      if (good)
        use_.checked(worker, index, reader, from, to - from, part(from, to));
      else if (use_.damaged)
        use_.damaged(index, from, to - from, reader.mismatch(from, to - from));
      else
        throw reader.mismatch(from, to - from);
      from = to;
    }
  }

  void add_bytes(std::int64_t bytes) {
    const std::scoped_lock hold(lock_);
    bytes_read_ += bytes;
  }

  const fs::path& step_dir_;
  const Manifest& manifest_;
  const std::span<const BlockRun> runs_;
  const BlockUse& use_;

  std::mutex lock_;  // of the next
  std::int64_t bytes_read_ = 0;
  std::array<Open, scan_workers + 1> open_;
};

}  // namespace

std::int64_t scan_blocks(const fs::path& step_dir, const Manifest& manifest, std::span<const BlockRun> runs,
                         const BlockUse& use) {
  return Scan(step_dir, manifest, runs, use).run();
}

}  // namespace holdfast::checkpoint
