#include "checkpoint/shards/shard_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "checkpoint/io/crc32c.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {
namespace {

Damaged damaged_in(const fs::path& step_dir, const std::string& file, const std::string& why) {
  return Damaged("checkpoint " + step_dir.string() + " is damaged", file + ": " + why);
}

/// An errno proves nothing about the bytes.
Unreadable unreadable_in(const fs::path& step_dir, const std::string& file, const std::system_error& e) {
  return Unreadable("checkpoint " + step_dir.string(),
                    file + ": " + (e.code().value() == ENOENT ? "it is missing" : e.code().message()));
}

DirectReader open(const fs::path& step_dir, const std::string& file) {
  try {
    return DirectReader(step_dir / file);
  } catch (const std::system_error& e) {
    throw unreadable_in(step_dir, file, e);
  }
}

}  // namespace

ShardReader::ShardReader(const fs::path& step_dir, const Manifest& manifest, std::size_t rank)
    : step_dir_(step_dir),
      shard_(manifest.shards.at(rank)),
      blocks_(blocks_of(shard_)),
      file_(open(step_dir, shard_.file)) {
  if (!file_.is_regular()) throw damaged("it is not a file");
  if (file_.bytes() != shard_.bytes)
    throw damaged("it has " + std::to_string(file_.bytes()) + " bytes, not " + std::to_string(shard_.bytes));
  read_head(manifest, rank);
}

void ShardReader::read_head(const Manifest& manifest, std::size_t rank) {
  const std::int64_t bytes = 8 * record_elements(shard_);
  const AlignedBuffer room(bytes);
  read_exactly(room.span(), bytes, shard_.data_offset);
  head_read_ = bytes;
  const std::span<const std::byte> head = room.span().first(bytes);
  const Record expected = record_of(manifest, rank);
  const std::string wrong =
      shard_.has_head() ? wrong_head(head, expected, shard_)
                        : wrong_record({reinterpret_cast<const char*>(head.data()), head.size()}, expected);
  if (!wrong.empty()) throw damaged(wrong);
  if (shard_.has_head()) {
    const auto table = table_in(head, blocks_.count());
    table_.assign(table.begin(), table.end());
  } else {
    table_ = shard_.block_crc32c;  // the manifest has proved it against the root
  }
}

std::span<const std::byte> ShardReader::read(std::int64_t first, std::int64_t count,
                                             std::span<std::byte> room) const {
  const std::int64_t from = blocks_.offset(first),
                     bytes = blocks_.offset(first + count - 1) + blocks_.bytes(first + count - 1) - from;
  read_exactly(room, bytes, from);
  return room.first(bytes);
}

bool ShardReader::matches(std::int64_t k, std::span<const std::byte> bytes) const {
  return crc32c(bytes.data(), bytes.size()) == table_.at(k);
}

Damaged ShardReader::mismatch(std::int64_t first, std::int64_t count) const {
  const std::string of = " of " + std::to_string(blocks_.count());
  if (count == 1) return damaged("block " + std::to_string(first) + of + " does not match its checksum");
  return damaged("blocks " + std::to_string(first) + " to " + std::to_string(first + count - 1) + of +
                 " do not match their checksums");
}

std::string ShardReader::metadata() const {
  const AlignedBuffer room(shard_.data_offset);
  read_exactly(room.span(), shard_.data_offset, 0);
  return {reinterpret_cast<const char*>(room.span().data()), as_size(shard_.data_offset)};
}

void ShardReader::read_exactly(std::span<std::byte> room, std::int64_t bytes, std::int64_t offset) const {
  try {
    if (file_.read(room.first(whole_pages(bytes)), offset) < bytes) throw damaged("it ends too early");
  } catch (const std::system_error& e) {
    throw unreadable_in(step_dir_, shard_.file, e);
  }
}

Damaged ShardReader::damaged(const std::string& why) const { return damaged_in(step_dir_, shard_.file, why); }

}  // namespace holdfast::checkpoint
