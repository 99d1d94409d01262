#pragma once
// The pieces that this rank writes, wherever its optimizer arenas lie at the moment: on the host they move
// from buffer to buffer of the local level, on a GPU they lie in its memory.
#include <cstdint>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/shard/layout.hpp"
#include "src/train/local/local_level.hpp"

namespace holdfast::train {

class OwnedPieces {
 public:
  /// `owned`: StateViews::owned of the rank of `layout`.
  OwnedPieces(const checkpoint::State& owned, const shard::Layout& layout);
  /// Valid until the next call. Allocates nothing.
  const checkpoint::State& in(const StateArenas& arenas);

 private:
  checkpoint::State state_;
  std::vector<std::int64_t> offsets_;  // of each piece, in bytes, in the arena of its family
};

}  // namespace holdfast::train
