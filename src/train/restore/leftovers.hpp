#pragma once
// What a restore must not find, now or later: state that is not trusted any more, and snapshots of ranks
// that there are no more.
#include <cstdint>
#include <span>

#include "checkpoint/index/patience.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/local/offers.hpp"
#include "src/train/local/snapshots.hpp"

namespace holdfast::train {

/// Collective. Nothing for `trusted_step` -1. Checkpoints of later steps get ".suspect" behind their names,
/// so that nobody takes them for checkpoints; later snapshots of this rank are opened. `local` may be null.
void put_away_untrusted(const RunDir& dir, std::int64_t trusted_step, Snapshots* local,
                        const checkpoint::Patience& patience, comm::Communicator& world);

/// Collective, after a restore: of this node, files of ranks that the world has no more, and those of ranks
/// that are elsewhere which hold later state than is trusted. `node_of`: by rank.
void remove_leftovers(NodeFiles& files, std::span<const int> node_of, std::int64_t trusted_step,
                      comm::Communicator& world);

}  // namespace holdfast::train
