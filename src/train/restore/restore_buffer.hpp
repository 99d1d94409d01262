#pragma once
// Where a rank's state is put together. Without a local level: where the views show it. With one, a snapshot
// buffer of it: the buffer that has the state already, of which only damaged pieces are replaced; or, where
// there is none, the buffer whose content is worth least, so that the next older point can still be had if
// this one fails.
#include <optional>
#include <vector>

#include "src/train/local/offers.hpp"
#include "src/train/local/snapshots.hpp"
#include "src/train/state/state_views.hpp"

namespace holdfast::train {

class RestoreBuffer {
 public:
  /// References outlive the object. `local` may be null.
  RestoreBuffer(const StateViews& views, Snapshots* local);

  /// The state of `point` begins to be put together; `has_it`: the buffer of this rank's file that holds it.
  void begin(const PointId& point, std::optional<int> has_it);
  /// The pieces of this sealed buffer stay where they are.
  std::optional<int> in_place() const { return in_place_ ? std::optional(buffer_) : std::nullopt; }
  /// In place: this piece is replaced. Other ranks of the node may still be reading the buffer, so the new
  /// one lies elsewhere until finish().
  void replace(int piece);

  const checkpoint::PieceView& piece(int i) const { return held_.pieces[i]; }
  std::span<std::byte> bytes(int i) const;
  std::uint64_t digest(int i) const;
  /// All pieces, wherever each lies now.
  const checkpoint::State& held() const { return held_; }

  /// The state is whole, and what the run goes on from. Nobody reads this rank's file any more.
  void finish(const checkpoint::RunPoint& point, const std::vector<std::uint64_t>& digests);

 private:
  int worth_least(const PointId& point) const;

  const StateViews& views_;
  Snapshots* const local_;
  checkpoint::State held_;
  int buffer_ = -1;
  bool in_place_ = false;
  std::vector<std::vector<std::byte>> replaced_;  ///< by piece
};

}  // namespace holdfast::train
