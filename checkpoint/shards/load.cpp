#include "checkpoint/shards/load.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "checkpoint/shards/load_plan.hpp"

namespace holdfast::checkpoint {
namespace {

/// Calls `visit(copy, from, to)` with the part [from, to) of each copy that lies in bytes [first, end) of the
/// file.
template <class Visit>
void for_each_part(const std::vector<Copy>& copies, std::int64_t first, std::int64_t end, Visit visit) {
  auto at = std::partition_point(copies.begin(), copies.end(),
                                 [&](const Copy& copy) { return copy.reach <= first; });
  for (; at != copies.end() && at->offset < end; ++at) {
    const std::int64_t from = std::max(first, at->offset), to = std::min(end, at->offset + at->bytes);
    if (from < to) visit(*at, from, to);
  }
}

void scatter(const std::vector<Copy>& copies, std::int64_t first, std::span<const std::byte> bytes) {
  for_each_part(copies, first, first + static_cast<std::int64_t>(bytes.size()),
                [&](const Copy& copy, std::int64_t from, std::int64_t to) {
                  std::memcpy(copy.to + (from - copy.offset), bytes.data() + (from - first), to - from);
                });
}

std::int64_t read_all(const fs::path& step_dir, const Manifest& manifest, const LoadPlan& plan,
                      decltype(BlockUse::damaged) damaged) {
  const BlockUse use{[&](int, std::size_t run, const ShardReader& reader, std::int64_t first, std::int64_t,
                         std::span<const std::byte> bytes) {
                       scatter(plan.copies[plan.runs[run].shard], reader.blocks().offset(first), bytes);
                     },
                     std::move(damaged)};
  return scan_blocks(step_dir, manifest, plan.runs, use);
}

}  // namespace

Loaded load(const fs::path& step_dir, Manifest manifest, const State& into) {
  const std::int64_t bytes = read_all(step_dir, manifest, plan_load(step_dir, manifest, into), {});
  return {std::move(manifest), bytes};
}

Loaded load(const fs::path& step_dir, const State& into) {
  return load(step_dir, read_manifest(step_dir), into);
}

Salvaged salvage(const fs::path& step_dir, const Manifest& manifest, const State& into) {
  const LoadPlan plan = plan_load(step_dir, manifest, into);
  Salvaged out{std::vector<bool>(into.pieces.size(), true), {}, 0};
  std::mutex lock;
  out.bytes_read = read_all(
      step_dir, manifest, plan,
      [&](std::size_t run, std::int64_t first, std::int64_t count, const Damaged& why) {
        const std::size_t shard = plan.runs[run].shard;
        const Blocks blocks = blocks_of(manifest.shards[shard]);
        const std::int64_t last = first + count - 1;
        const std::scoped_lock hold(lock);
        if (std::find(out.problems.begin(), out.problems.end(), why.why()) == out.problems.end())
          out.problems.push_back(why.why());
        for_each_part(plan.copies[shard], blocks.offset(first), blocks.offset(last) + blocks.bytes(last),
                      [&](const Copy& copy, std::int64_t, std::int64_t) { out.whole[copy.piece] = false; });
      });
  return out;
}

}  // namespace holdfast::checkpoint
