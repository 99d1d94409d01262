#include "checkpoint/load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>

#include "checkpoint/shard_reader.hpp"

namespace holdfast::checkpoint {
namespace {

/// Where elements [first, first + count) of a tensor are stored.
struct Stored {
  std::int64_t first, count;
  std::size_t shard;
  std::int64_t offset;
};

/// Bytes of one shard file and the memory they go to.
struct Copy {
  std::int64_t offset, bytes;
  char* to;
};

/// For each tensor of `into`: its index in the manifest, or -1 when no piece asks for it.
std::vector<int> match_tensors(const Manifest& manifest, const State& into, const fs::path& step_dir) {
  std::unordered_map<std::string, int> index;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
    index[manifest.tensors[i].name] = static_cast<int>(i);
  std::vector<int> matched(into.tensors.size(), -1);
  for (const PieceView& piece : into.pieces) {
    const LogicalTensor& wanted = into.tensors.at(static_cast<std::size_t>(piece.tensor));
    expects(piece.first >= 0 && piece.count >= 0 && piece.first + piece.count <= wanted.elements(),
            "pieces lie inside their tensors");
    int& match = matched[static_cast<std::size_t>(piece.tensor)];
    if (match >= 0) continue;
    const auto found = index.find(wanted.name);
    if (found == index.end())
      throw Error(Exit::no_requeue, "checkpoint " + step_dir.string() + " is of another model",
                  "it has no tensor " + wanted.name);
    const LogicalTensor& there = manifest.tensors[static_cast<std::size_t>(found->second)];
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

/// All stored pieces, by tensor, in the order of their first element. The manifest has proved that they do
/// not overlap.
std::vector<std::vector<Stored>> where_stored(const Manifest& manifest) {
  std::vector<std::vector<Stored>> stored(manifest.tensors.size());
  for (std::size_t shard = 0; shard < manifest.shards.size(); ++shard)
    for (const StoredPiece& piece : manifest.shards[shard].pieces)
      stored[static_cast<std::size_t>(piece.span.tensor)].push_back(
          {piece.span.first, piece.span.count, shard, piece.offset});
  for (auto& pieces : stored)
    std::sort(pieces.begin(), pieces.end(),
              [](const Stored& a, const Stored& b) { return a.first < b.first; });
  return stored;
}

/// What to read from each shard: the intersection of what is stored with what is asked for, by global element
/// index.
std::vector<std::vector<Copy>> plan_copies(const Manifest& manifest, const State& into,
                                           const std::vector<int>& matched) {
  const auto stored = where_stored(manifest);
  std::vector<std::vector<Copy>> copies(manifest.shards.size());
  for (const PieceView& piece : into.pieces) {
    if (piece.count == 0) continue;
    const auto& pieces = stored[static_cast<std::size_t>(matched[static_cast<std::size_t>(piece.tensor)])];
    const std::int64_t end = piece.first + piece.count;
    auto at = std::upper_bound(pieces.begin(), pieces.end(), piece.first,
                               [](std::int64_t first, const Stored& s) { return first < s.first; });
    if (at != pieces.begin()) --at;
    for (; at != pieces.end() && at->first < end; ++at) {
      const std::int64_t from = std::max(piece.first, at->first), to = std::min(end, at->first + at->count);
      if (from >= to) continue;
      const std::int64_t element = bytes_of(into.tensors[static_cast<std::size_t>(piece.tensor)].type);
      copies[at->shard].push_back({at->offset + (from - at->first) * element, (to - from) * element,
                                   static_cast<char*>(piece.data) + (from - piece.first) * element});
    }
  }
  for (auto& of_shard : copies)
    std::sort(of_shard.begin(), of_shard.end(),
              [](const Copy& a, const Copy& b) { return a.offset < b.offset; });
  return copies;
}

/// Walks the copies of one shard in file order, so that each block is read once.
std::int64_t scatter(ShardReader reader, const std::vector<Copy>& copies, std::int64_t data_offset) {
  for (const Copy& copy : copies) {
    for (std::int64_t at = copy.offset, end = copy.offset + copy.bytes; at < end;) {
      const std::int64_t k = (at - data_offset) / block_bytes;
      const std::span<const char> block = reader.block(k);
      const std::int64_t inside = at - reader.block_first(k),
                         bytes = std::min(end - at, static_cast<std::int64_t>(block.size()) - inside);
      std::memcpy(copy.to + (at - copy.offset), block.data() + inside, static_cast<std::size_t>(bytes));
      at += bytes;
    }
  }
  return reader.bytes_read();
}

}  // namespace

Loaded load(const fs::path& step_dir, Manifest manifest, const State& into) {
  Loaded loaded{std::move(manifest), 0};
  const Manifest& m = loaded.manifest;
  const auto copies = plan_copies(m, into, match_tensors(m, into, step_dir));
  for (std::size_t shard = 0; shard < copies.size(); ++shard)
    if (!copies[shard].empty())
      loaded.bytes_read +=
          scatter(ShardReader(step_dir, m, shard), copies[shard], m.shards[shard].data_offset);
  return loaded;
}

Loaded load(const fs::path& step_dir, const State& into) {
  return load(step_dir, read_manifest(step_dir), into);
}

}  // namespace holdfast::checkpoint
