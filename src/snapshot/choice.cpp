#include "src/snapshot/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "src/base/error.hpp"

namespace holdfast::snapshot {
namespace {

/// Where the pieces of one point come from.
class PointSources {
 public:
  PointSources(const RestoreWorld& world, std::span<const Offer> offers, std::span<const SharedOffer> shared,
               const PointId& point, const RestoreRules& rules)
      : world_(world),
        offers_(offers),
        rules_(rules),
        of_kind_(world.piece_bytes.size()),
        given_(world.node_of.size()) {
    for (std::size_t i = 0; i < offers.size(); ++i)
      if (offers[i].point == point) of_kind_[world.kind(offers[i].of)].push_back(static_cast<int>(i));
    for (std::size_t i = 0; i < shared.size() && !shared_; ++i)
      if (shared[i].point == point) {
        shared_ = static_cast<int>(i);
        shared_bad_ = &shared[i].bad;
      }
  }

  /// Two snapshots that should be the same: nobody knows which of them is right.
  std::optional<std::string> contradiction() const {
    for (const auto& same : of_kind_)
      for (const int i : same)
        if (offers_[i].seal != offers_[same.front()].seal)
          return fmt::format("has two different states, one in the {} of rank {} and one in that of rank {}",
                             offers_[i].copy ? "copy" : "file", offers_[i].of, offers_[same.front()].of);
    return std::nullopt;
  }

  /// Sources of all pieces of `rank`, or why there are none.
  std::optional<std::string> place(int rank, std::vector<PieceSource>& out) {
    const int kind = world_.kind_of[rank];
    const auto& bytes = world_.piece_bytes[kind];
    for (const int i : of_kind_[kind])
      if (is_own(offers_[i], rank) && offers_[i].bad.empty()) {
        out = {{Level::local, i}};
        return std::nullopt;
      }
    for (int piece = 0; piece < std::ssize(bytes); ++piece) {
      const auto source = nearest(rank, kind, piece);
      if (!source) return why_none(rank, kind, piece);
      out.push_back(*source);
      if (source->level != Level::shared && source->level != Level::local)
        given_[offers_[source->offer].reader] += bytes[piece];
    }
    return std::nullopt;
  }

 private:
  bool same_node(const Offer& offer, int rank) const {
    return world_.node_of[offer.reader] == world_.node_of[rank];
  }
  bool is_own(const Offer& offer, int rank) const {
    return offer.of == rank && !offer.copy && same_node(offer, rank);
  }
  Level level_of(const Offer& offer, int rank) const {
    if (is_own(offer, rank)) return Level::local;
    return offer.copy ? Level::partner : Level::peer;
  }

  std::optional<PieceSource> nearest(int rank, int kind, int piece) const {
    std::optional<PieceSource> best;
    std::tuple<Level, bool, std::int64_t> best_cost;
    const bool full = rules_.full.contains(world_.node_of[rank]);
    for (const int i : of_kind_[kind]) {
      const Offer& offer = offers_[i];
      const bool far = !same_node(offer, rank);
      if (offer.bad.contains(piece) || (far && !rules_.network) || (full && !is_own(offer, rank))) continue;
      const std::tuple cost(level_of(offer, rank), far, given_[offer.reader]);
      if (!best || cost < best_cost) {
        best = PieceSource{std::get<0>(cost), i};
        best_cost = cost;
      }
    }
    if (!best && shared_ && !shared_bad_->contains({kind, piece}))
      best = PieceSource{Level::shared, *shared_};
    return best;
  }

  std::string why_none(int rank, int kind, int piece) const {
    bool own = false, damaged = false, unreachable = false;
    for (const int i : of_kind_[kind]) {
      const Offer& offer = offers_[i];
      own = own || is_own(offer, rank);
      damaged = damaged || offer.bad.contains(piece);
      unreachable = unreachable || (!offer.bad.contains(piece) && !same_node(offer, rank));
    }
    const std::string whose = fmt::format("rank {}'s piece {}", rank, piece),
                      shared = shared_ ? ", also in the checkpoint" : "";
    if (unreachable) return fmt::format("{} is on another node, which could not send it", whose);
    if (damaged) return fmt::format("{} is damaged{} and no peer has it", whose, shared);
    if (shared_) return fmt::format("{} is damaged in the checkpoint and no peer has it", whose);
    return own ? fmt::format("{} is missing and no peer has it", whose)
               : fmt::format("nobody has rank {}'s state of it", rank);
  }

  const RestoreWorld& world_;
  std::span<const Offer> offers_;
  const RestoreRules& rules_;
  std::vector<std::vector<int>> of_kind_;  ///< offers of this point
  std::optional<int> shared_;
  const std::set<std::pair<int, int>>* shared_bad_ = nullptr;
  std::vector<std::int64_t> given_;  ///< bytes that each reader gives so far
};

}  // namespace

const char* name_of(Level level) {
  constexpr const char* names[levels] = {"local", "peer", "partner", "shared"};
  return names[static_cast<int>(level)];
}

const PieceSource& RestoreChoice::source(int rank, int piece) const {
  const auto& row = of_rank[rank];
  return row.size() == 1 ? row.front() : row[piece];
}

Level RestoreChoice::slowest() const {
  Level out = Level::local;
  for (const auto& row : of_rank)
    for (const PieceSource& source : row) out = std::max(out, source.level);
  return out;
}

std::optional<int> RestoreChoice::shared() const {
  for (const auto& row : of_rank)
    for (const PieceSource& source : row)
      if (source.level == Level::shared) return source.offer;
  return std::nullopt;
}

RestoreChoice choose(const RestoreWorld& world, std::span<const Offer> offers,
                     std::span<const SharedOffer> shared, const RestoreRules& rules) {
  expects(world.node_of.size() >= world.kind_of.size(), "every rank has a node and a kind");
  std::set<PointId, std::greater<>> points;
  for (const Offer& offer : offers) points.insert(offer.point);
  for (const SharedOffer& offer : shared) points.insert(offer.point);
  RestoreChoice out;
  for (const PointId& point : points) {
    if (rules.refused.contains(point)) continue;
    PointSources sources(world, offers, shared, point, rules);
    auto why = sources.contradiction();
    out.of_rank.assign(world.kind_of.size(), {});
    for (std::size_t rank = 0; rank < out.of_rank.size() && !why; ++rank)
      if (auto none = sources.place(static_cast<int>(rank), out.of_rank[rank]))
        why = "is not whole: " + *none;
    if (!why) {
      out.found = true;
      out.point = point;
      return out;
    }
    out.reasons.push_back(fmt::format("step {} {}", point.step, *why));
  }
  out.of_rank.clear();
  return out;
}

}  // namespace holdfast::snapshot
