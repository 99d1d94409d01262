#pragma once
// From which of the states in the memory of nodes ranks start, and where each piece of it comes from. A pure
// function of what is offered. The ranks of the trainer compute it for all, and come to the same; for another
// program the leader does (launcher/supervise/restore_ladder.hpp): there the whole state of a rank is one
// piece.
//
// Sources are asked piece by piece, in this order: the rank's own snapshot, a replica's, a partner's copy,
// the shared checkpoint of the same point. Only when a piece is on none of them, the next older point is
// tried. Pieces of different points are never joined.
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"

namespace holdfast::snapshot {

/// Names a state. Ordered by the life of the run: samples only ever grow, while a rollback goes back in
/// steps. Of a program's state only step and attempt are known.
struct PointId {
  std::int64_t samples = 0, step = 0, tokens = 0;
  std::uint64_t memory = 0;  ///< hash of what detector and scaling remember
  int attempt = 0;           ///< in which it was sealed, where two attempts reach a step with different bits
  auto operator<=>(const PointId&) const = default;
};

/// A sealed state of a rank.
struct Offer {
  int reader = 0;     ///< who gives it to other nodes; ranks of its own node read it, too
  int of = 0;         ///< whose state
  bool copy = false;  ///< kept for another node
  int buffer = 0;
  PointId point;
  std::uint64_t seal = 0;  ///< hash of its digests: equal state, equal seal
  std::set<int> bad;       ///< pieces that turned out damaged
  bool operator==(const Offer&) const = default;
};

/// Fastest first.
enum class Level { local, peer, partner, shared };
constexpr int levels = 4;
const char* name_of(Level level);

/// Who is where and has what.
struct RestoreWorld {
  /// Rank -> node: those of one node read each other's snapshots in its memory. Behind the ranks there may be
  /// readers that are no ranks.
  std::vector<int> node_of;
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
  /// One for each piece of the rank; just one when all come from its own snapshot.
  std::vector<std::vector<PieceSource>> of_rank;
  std::vector<std::string> reasons;  ///< why no newer point, one sentence each

  const PieceSource& source(int rank, int piece) const;
  /// All pieces come from the rank's own snapshot, on its own node.
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
  std::set<int> full = {};         ///< nodes that have no room for what is not a rank's own
};

/// The newest point that is whole, and its sources. Where several are equally near, the bytes that each gives
/// are balanced.
RestoreChoice choose(const RestoreWorld& world, std::span<const Offer> offers,
                     std::span<const SharedOffer> shared, const RestoreRules& rules = {});

}  // namespace holdfast::snapshot
