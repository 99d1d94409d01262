#pragma once
// What a writer tells the committer about its part of a checkpoint: JSON text, opaque to the control channel.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/files_manifest.hpp"
#include "checkpoint/index/manifest.hpp"

namespace holdfast::checkpoint {

struct Vote {
  int rank = 0;
  std::string agree;  ///< 32 hex digits over point, facts, tensors and layout: equal in all votes
  ShardInfo shard;    ///< this rank's file
  /// One per piece of the shard, which the layout names (src/base/digest.hpp).
  std::vector<std::uint64_t> piece_digests;
  bool has_common = false;  ///< rank 0: `common` is filled
  Manifest common;          ///< everything but shards and digests; generation and point.step always
};

/// A vote of another program on files that it has written itself, as the client says it.
struct FilesVote {
  std::string path;  ///< below which they lie; absolute where there is a list
  std::int64_t files = 0, bytes = 0;
  /// Their names, sizes and digests, where the program names them; their ranks are not set.
  std::optional<std::vector<ListedFile>> list = {};
};
/// Nothing when `text` is no vote of this kind. Throws Damaged when it is a malformed one.
std::optional<FilesVote> parse_files_vote(const std::string& text);

/// `common` without its shards and digests. Rank 0's text carries all of it, the others' only the generation
/// and a hash of the rest.
std::string vote_text(int rank, const Manifest& common, const ShardInfo& shard,
                      std::span<const std::uint64_t> piece_digests);
/// Throws Damaged that names the first thing wrong.
Vote parse_vote(const std::string& text);

}  // namespace holdfast::checkpoint
