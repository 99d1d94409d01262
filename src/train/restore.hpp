#pragma once
// Where the run goes on: the newest checkpoint that every rank can read and that turns out to be the state it
// says it is. A damaged one is named and passed over.
#include <string>

#include "checkpoint/state.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/state_views.hpp"

namespace holdfast::train {

struct RestoreOrder {
  std::string resume = "auto";  ///< run.resume: auto, none, or the path of a checkpoint
  /// Not the first attempt of a supervised run: `none` and a path mean its beginning, now its own checkpoints
  /// come first.
  bool restarted = false;
  bool other_numerics = false;  ///< a checkpoint that was made under another numerics identity is taken too
};

struct RestoredFrom {
  bool fresh = true;           ///< nothing was loaded: the caller fills in initial weights
  checkpoint::RunPoint point;  ///< all zero when fresh
  std::string note;            ///< what was passed over and why, or ""
};

/// Collective. Fills the memory of views.held, or leaves it undefined when `fresh`. Throws Error (usage) when
/// the checkpoint is of another model or, unless it may be, of another numerics identity, when a path names
/// no checkpoint, and when `none` would mix two runs in one directory.
RestoredFrom restore(const RunDir& dir, const RestoreOrder& order, const StateViews& views,
                     const checkpoint::Facts& facts, comm::Communicator& world);

}  // namespace holdfast::train
