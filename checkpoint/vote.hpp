#pragma once
// What a writer tells the committer about its part of a checkpoint: JSON text, opaque to the control channel.
#include <string>

#include "checkpoint/manifest.hpp"

namespace holdfast::checkpoint {

struct Vote {
  int rank = 0;
  std::string
      agree;  ///< 32 hex digits over point, facts, tensors and digests: equal in all votes of one checkpoint
  ShardInfo shard;          ///< this rank's file
  bool has_common = false;  ///< rank 0: `common` is filled
  Manifest common;          ///< everything but the shards; generation and point.step always
};

/// `common` without its shards. Rank 0's text carries all of it, the others' only the generation and a hash
/// of the rest.
std::string vote_text(int rank, const Manifest& common, const ShardInfo& shard);
/// Throws Damaged that names the first thing wrong.
Vote parse_vote(const std::string& text);

}  // namespace holdfast::checkpoint
