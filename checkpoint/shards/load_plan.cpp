#include "checkpoint/shards/load_plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <unordered_map>

namespace holdfast::checkpoint {
namespace {

/// For each tensor of `into`: its index in the manifest, or -1 when no piece asks for it.
std::vector<int> match_tensors(const Manifest& manifest, const State& into, const fs::path& step_dir) {
  std::unordered_map<std::string, int> index;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
    index[manifest.tensors[i].name] = static_cast<int>(i);
  std::vector<int> matched(into.tensors.size(), -1);
  for (const PieceView& piece : into.pieces) {
    const LogicalTensor& wanted = into.tensors.at(piece.tensor);
    expects(piece.first >= 0 && piece.count >= 0 && piece.first + piece.count <= wanted.elements(),
            "pieces lie inside their tensors");
    int& match = matched[piece.tensor];
    if (match >= 0) continue;
    const auto found = index.find(wanted.name);
    if (found == index.end())
      throw Error(Exit::no_requeue, "checkpoint " + step_dir.string() + " is of another model",
                  "it has no tensor " + wanted.name);
    const LogicalTensor& there = manifest.tensors[found->second];
    if (there.type != wanted.type)
      throw Error(
          Exit::usage, "checkpoint " + step_dir.string() + " has another precision",
          fmt::format("{} is {} there, {} here", wanted.name, name_of(there.type), name_of(wanted.type)),
          "Set [precision] moments as it was?");
    if (there != wanted)
      throw Error(Exit::no_requeue, "checkpoint " + step_dir.string() + " is of another model",
                  wanted.name + " is " + std::to_string(there.rows) + " x " + std::to_string(there.cols) +
                      " there, " + std::to_string(wanted.rows) + " x " + std::to_string(wanted.cols) +
                      " here");
    match = found->second;
  }
  return matched;
}

/// The intersection of what is stored with what is asked for, by global element index.
std::vector<std::vector<Copy>> plan_copies(const Manifest& manifest, const State& into,
                                           const std::vector<int>& matched) {
  const auto stored = where_stored(manifest);
  std::vector<std::vector<Copy>> copies(manifest.shards.size());
  for (std::size_t p = 0; p < into.pieces.size(); ++p) {
    const PieceView& piece = into.pieces[p];
    if (piece.count == 0) continue;
    const auto& pieces = stored[matched[piece.tensor]];
    const std::int64_t end = piece.first + piece.count;
    auto at = std::upper_bound(pieces.begin(), pieces.end(), piece.first,
                               [](std::int64_t first, const Stored& s) { return first < s.first; });
    if (at != pieces.begin()) --at;
    for (; at != pieces.end() && at->first < end; ++at) {
      const std::int64_t from = std::max(piece.first, at->first), to = std::min(end, at->first + at->count);
      if (from >= to) continue;
      const std::int64_t element = bytes_of(into.tensors[piece.tensor].type);
      copies[at->shard].push_back({at->offset + (from - at->first) * element, (to - from) * element,
                                   static_cast<std::byte*>(piece.data) + (from - piece.first) * element, p});
    }
  }
  for (auto& of_shard : copies) {
    std::sort(of_shard.begin(), of_shard.end(),
              [](const Copy& a, const Copy& b) { return a.offset < b.offset; });
    std::int64_t reach = 0;
    for (Copy& copy : of_shard) copy.reach = reach = std::max(reach, copy.offset + copy.bytes);
  }
  return copies;
}

/// Whole blocks around the copies of a shard: none twice, neighbours together up to the size of a run.
void add_runs(std::size_t shard, const Blocks& blocks, const std::vector<Copy>& copies,
              std::vector<BlockRun>& runs) {
  const std::int64_t most = blocks_per_run(blocks.each);
  std::int64_t next = 0;  // the first block that no run has yet
  bool joins = false;     // whether the last run is of this shard
  for (const Copy& copy : copies) {
    const std::int64_t last = blocks.at(copy.offset + copy.bytes - 1);
    for (std::int64_t k = std::max(next, blocks.at(copy.offset)); k <= last;) {
      if (!joins || runs.back().first + runs.back().count != k || runs.back().count == most)
        runs.push_back({shard, k, 0});
      joins = true;
      const std::int64_t count = std::min(last + 1 - k, most - runs.back().count);
      runs.back().count += count;
      k += count;
    }
    next = std::max(next, last + 1);
  }
}

}  // namespace

std::vector<std::vector<Stored>> where_stored(const Manifest& manifest) {
  std::vector<std::vector<Stored>> stored(manifest.tensors.size());
  for (std::size_t shard = 0; shard < manifest.shards.size(); ++shard)
    for (const StoredPiece& piece : pieces_of(manifest, shard))
      stored[piece.span.tensor].push_back({piece.span.first, piece.span.count, shard, piece.offset});
  for (auto& pieces : stored)
    std::sort(pieces.begin(), pieces.end(),
              [](const Stored& a, const Stored& b) { return a.first < b.first; });
  return stored;
}

LoadPlan plan_load(const fs::path& step_dir, const Manifest& manifest, const State& into) {
  LoadPlan plan{plan_copies(manifest, into, match_tensors(manifest, into, step_dir)), {}};
  for (std::size_t shard = 0; shard < plan.copies.size(); ++shard)
    add_runs(shard, blocks_of(manifest.shards[shard]), plan.copies[shard], plan.runs);
  return plan;
}

}  // namespace holdfast::checkpoint
