#include "launcher/supervise/restore_ladder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/snapshot/choice.hpp"

namespace holdfast::launcher {
namespace {

snapshot::PointId point_of(const StateName& name) { return {.step = name.step, .attempt = name.attempt}; }

}  // namespace

/// The whole state of a rank is one piece, and no two ranks have the same. Nodes are readers behind the
/// ranks.
std::optional<StateChoice> choose_state(const std::vector<Holding>& holdings,
                                        const std::vector<int>& placement, int ranks_per_node,
                                        std::int64_t at_least, const std::set<StateName>& refused,
                                        const std::set<int>& full) {
  const int ranks = static_cast<int>(placement.size()) * ranks_per_node;
  snapshot::RestoreWorld world{{}, {}, std::vector(as_size(ranks), std::vector<std::int64_t>{1})};
  for (int rank = 0; rank < ranks; ++rank) {
    world.node_of.push_back(placement[rank / ranks_per_node]);
    world.kind_of.push_back(rank);
  }
  std::vector<snapshot::Offer> offers;
  for (const Holding& h : holdings) {
    if (h.what.world != ranks || h.what.rank >= ranks) continue;
    const auto known = std::find(world.node_of.begin() + ranks, world.node_of.end(), h.node);
    const auto reader = static_cast<int>(known - world.node_of.begin());
    if (known == world.node_of.end()) world.node_of.push_back(h.node);
    // What lies on another node is as far away, whoever it was for.
    const bool copy = h.what.copy || h.node != world.node_of[h.what.rank];
    offers.push_back({reader, h.what.rank, copy, 0, point_of({h.what.step, h.what.attempt}), 0, {}});
  }
  const snapshot::SharedOffer checkpoint{point_of({at_least, -1}), {}};
  snapshot::RestoreRules rules{.full = full};
  for (const StateName& name : refused) rules.refused.insert(point_of(name));
  const auto found = snapshot::choose(world, offers, {&checkpoint, 1}, rules);
  if (!found.found || found.shared()) return std::nullopt;
  StateChoice choice{{found.point.step, found.point.attempt}, {}};
  for (int rank = 0; rank < ranks; ++rank)
    if (!found.all_own(rank))
      choice.moves.push_back(
          {rank, world.node_of[offers[found.source(rank, 0).offer].reader], world.node_of[rank]});
  return choice;
}

void RestoreLadder::has(int node, std::vector<control::SealedState> sealed) {
  std::erase_if(holdings_, [&](const Holding& h) { return h.node == node; });
  for (auto& state : sealed) holdings_.push_back({node, state});
}

void RestoreLadder::lost(int node) {
  std::erase_if(holdings_, [&](const Holding& h) { return h.node == node; });
  if (!holdings_.empty()) return;
  choice_ = {};
  awaited_.clear();
}

void RestoreLadder::fetched(int node, const control::StateFetched& what) {
  if (StateName{what.step, what.of_attempt} != choice_.state || !awaited_.contains(node)) return;
  awaited_.erase(node);
  if (what.why.empty()) return;
  note_ = fmt::format("step {} of attempt {}, rank {}: {}", what.step, what.of_attempt, what.rank, what.why);
  if (what.no_room) full_.insert(node);
  for (const StateMove& move : choice_.moves)  // another node may have the same
    if (move.rank == what.rank && !what.no_room)
      std::erase_if(holdings_, [&](const Holding& h) {
        return h.node == move.from && h.what.rank == move.rank && h.what.step == what.step &&
               h.what.attempt == what.of_attempt;
      });
  choice_ = {};
  awaited_.clear();
}

std::vector<StateMove> RestoreLadder::climb(const Facts& facts) {
  const bool moving = choice_.state.step >= 0;
  if (moving && !awaited_.empty() && facts.now - since_ > facts.limit_s) {
    note_ = fmt::format("step {} of attempt {} was not moved within {:g} s", choice_.state.step,
                        choice_.state.attempt, facts.limit_s);
    refused_.insert(choice_.state);
    awaited_.clear();
  } else if (moving) {
    settled_ = awaited_.empty();
    return {};
  }
  refused_.insert(facts.refused.begin(), facts.refused.end());
  for (const Holding& h : holdings_)
    if (note_.empty() && facts.refused.contains({h.what.step, h.what.attempt}))
      note_ =
          fmt::format("step {} of attempt {} is passed over: the program has ended with it again and again",
                      h.what.step, h.what.attempt);
  const auto next = best(facts);
  choice_ = next ? *next : StateChoice{};
  if (!next && note_.empty())
    note_ =
        !facts.trusted ? "no state in memory is trusted"
        : facts.durable_step >= 0
            ? fmt::format("no state of all ranks is as new as the checkpoint of step {}", facts.durable_step)
            : "no state of all ranks is left";
  since_ = facts.now;
  for (const auto& move : choice_.moves) awaited_.insert(move.to);
  settled_ = awaited_.empty();
  return choice_.moves;
}

std::optional<StateChoice> RestoreLadder::best(const Facts& facts) const {
  if (!facts.trusted) return std::nullopt;
  const auto at_least = no_checkpoint_ ? 0 : std::max<std::int64_t>(facts.durable_step, 0);
  return choose_state(holdings_, facts.placement, facts.ranks_per_node, at_least, refused_, full_);
}

bool RestoreLadder::reopen(const Facts& facts) {
  if (choice_.state.step >= 0) return false;
  no_checkpoint_ = facts.durable_step < 0;
  if (!best(facts)) return false;
  note_ = "the checkpoints that are newer are damaged";
  settled_ = told_ = false;
  return reopened_ = true;
}

const char* RestoreLadder::level() const {
  return choice_.state.step < 0 ? "shared" : choice_.moves.empty() ? "local" : "partner";
}

std::string RestoreLadder::tell() {
  told_ = true;
  return note_;
}

}  // namespace holdfast::launcher
