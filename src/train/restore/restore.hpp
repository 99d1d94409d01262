#pragma once
// Where the run goes on: the newest point whose state is somewhere in full, and turns out to be the state
// that was saved. See src/snapshot/choice.hpp for the order in which places are asked; what is damaged is
// named, and had from the next.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/index/patience.hpp"
#include "checkpoint/index/state.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/comm/peer_exchange.hpp"
#include "src/train/local/local_identity.hpp"
#include "src/train/local/offers.hpp"
#include "src/train/local/snapshots.hpp"
#include "src/train/state/state_views.hpp"

namespace holdfast::train {

struct RestoreOrder {
  std::string resume = "auto";  ///< run.resume: auto, none, or the path of a checkpoint
  /// Not the first attempt of a supervised run: `none` and a path mean its beginning, now its own checkpoints
  /// come first.
  bool restarted = false;
  bool other_numerics = false;  ///< a checkpoint that was made under another numerics identity is taken too
  bool rollback = false;        ///< to the newest checkpoint, whatever the local level has
  /// Not -1: state of later steps may be wrong. It is put away, at every level, so that no later restore
  /// finds it either.
  std::int64_t trusted_step = -1;
  /// Checkpoints that have to be there: what the leader's record says; nothing: what durable.json says.
  std::optional<std::vector<std::int64_t>> durable = {};
};

/// What a restore can use beside the shared level.
struct RestoreContext {
  const LocalRun& run;         ///< what each rank holds, also where there is no local level
  Snapshots* local = nullptr;  ///< of this rank; on every rank, or on none
  /// Collective: lets ranks send each other pieces. Empty: they cannot.
  std::function<std::unique_ptr<comm::PeerExchange>()> open_exchange = {};
  std::chrono::milliseconds limit{600'000};  ///< of one exchange of pieces
  checkpoint::Patience patience = {};        ///< with what cannot be read now
};

struct RestoredFrom {
  bool fresh = true;            ///< nothing was loaded: the caller fills in initial weights
  checkpoint::RunPoint point;   ///< all zero when fresh
  std::string level = "fresh";  ///< the slowest that was needed anywhere
  std::string digest;           ///< of the state, 16 hex digits; "" when fresh
  std::string note;             ///< what was damaged or passed over and why, or ""
  /// Over all ranks, by level: local, peer, partner, shared.
  std::int64_t pieces[levels] = {}, bytes[levels] = {};
  std::int64_t bytes_read = 0;       ///< from files of the shared level
  std::int64_t bytes_received = 0;   ///< from other ranks
  double seconds = 0;                ///< of this rank, in all
  double seconds_exchanging = 0;     ///< of the rank that needed longest for it
  std::string network;               ///< over what: PeerExchange::describe(), or ""
  std::filesystem::path checkpoint;  ///< of the shared level; "": none was used
  int term = 0;                      ///< under which it was written
};

/// For people, of what was loaded: " (96 pieces local, 24 from peers: 1.20 GiB over tcp/eth0 in 0.40 s)"; ""
/// when fresh.
std::string text_of(const RestoredFrom& from);

/// Collective. Fills the memory of views.held, or leaves it undefined when `fresh`; with a local level it is
/// a snapshot buffer of it, adopted, so the memory that the views show may move. Throws Error (usage) when
/// the checkpoint is of another model or, unless it may be, of another numerics identity, when a path names
/// no checkpoint, and when `none` would mix two runs in one directory. Never goes below the newest checkpoint
/// that is not proven damaged, and starts afresh only when there never was one: throws Error (transient) when
/// one cannot be read, (no_requeue) when it is of a newer format, or all are damaged. The same on every rank.
RestoredFrom restore(const RunDir& dir, const RestoreOrder& order, const StateViews& views,
                     const checkpoint::Facts& facts, comm::Communicator& world,
                     const RestoreContext& context);

}  // namespace holdfast::train
