#pragma once
// The restore order: which point of the run the ranks go on from, and where each piece of their state comes
// from. A pure function of what is offered; every rank computes it for all and comes to the same.
//
// Sources are asked piece by piece, in this order: the rank's own local file, a replica's, a partner's copy,
// the shared checkpoint of the same step. Only when a piece is on none of them, the next older point is
// tried. Pieces of different points are never joined.
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/train/local/offer.hpp"

namespace holdfast::train {

/// Fastest first.
enum class Level { local, peer, partner, shared };
constexpr int levels = 4;
const char* name_of(Level level);

/// Who is where and has what.
struct RestoreWorld {
  std::vector<int> node_of;  ///< rank -> node: those of one node read each other's files in its memory
  std::vector<int> kind_of;  ///< rank -> kind: ranks of one kind hold the same pieces
  std::vector<std::vector<std::int64_t>> piece_bytes;  ///< kind -> bytes of its pieces
  /// Also of a rank that there was only while the run had more replicas (local_identity.hpp).
  int kind(int rank) const {
    const auto i = as_size(rank);
    return i < kind_of.size() ? kind_of[i] : static_cast<int>(i % piece_bytes.size());
  }
};

/// A checkpoint at the shared level. Every rank can read it.
struct SharedOffer {
  PointId point;
  std::set<std::pair<int, int>> bad;  ///< kind and piece that turned out damaged
};

/// Where one piece comes from.
struct PieceSource {
  Level level = Level::local;
  int offer = 0;  ///< index of an Offer, or of the SharedOffer
  bool operator==(const PieceSource&) const = default;
};

struct RestoreChoice {
  bool found = false;  ///< false: there is no whole state at all
  PointId point;
  /// One for each piece of the rank; just one when all come from its own file.
  std::vector<std::vector<PieceSource>> of_rank;
  std::vector<std::string> reasons;  ///< why no newer point, one sentence each

  const PieceSource& source(int rank, int piece) const;
  /// All pieces come from the rank's own file, on its own node.
  bool all_own(int rank) const {
    const auto& row = of_rank[rank];
    return row.size() == 1 && row.front().level == Level::local;
  }
  Level slowest() const;
  /// The shared checkpoint that any piece comes from.
  std::optional<int> shared() const;
};

struct RestoreRules {
  bool network = true;             ///< nodes can send each other pieces
  std::set<PointId> refused = {};  ///< points that turned out not to be what they should be
};

/// The newest point that is whole, and its sources. Where several are equally near, the bytes that each gives
/// are balanced.
RestoreChoice choose(const RestoreWorld& world, std::span<const Offer> offers,
                     std::span<const SharedOffer> shared, const RestoreRules& rules = {});

}  // namespace holdfast::train
