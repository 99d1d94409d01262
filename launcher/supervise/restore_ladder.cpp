#include "launcher/supervise/restore_ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace holdfast::launcher {

std::optional<StateChoice> choose_state(const std::vector<Holding>& holdings,
                                        const std::vector<int>& placement, int ranks_per_node,
                                        std::int64_t at_least, const std::set<StateName>& refused,
                                        const std::set<int>& full) {
  const int world = static_cast<int>(placement.size()) * ranks_per_node;
  // Who has what: by state, newest first, and by rank.
  std::map<StateName, std::map<int, std::vector<const Holding*>>, std::greater<>> states;
  for (const Holding& h : holdings) {
    const StateName name{h.what.step, h.what.attempt};
    if (h.what.world == world && h.what.rank < world && name.step >= at_least && !refused.contains(name))
      states[name][h.what.rank].push_back(&h);
  }
  for (const auto& [name, of_ranks] : states) {
    if (static_cast<int>(of_ranks.size()) != world) continue;
    StateChoice choice{name, {}};
    for (const auto& [rank, who] : of_ranks) {
      const int node = placement[rank / ranks_per_node];
      const bool own = std::any_of(who.begin(), who.end(),
                                   [&](const Holding* h) { return h->node == node && !h->what.copy; });
      if (own) continue;
      // A copy that is on the node already costs the network nothing.
      const auto here =
          std::find_if(who.begin(), who.end(), [&](const Holding* h) { return h->node == node; });
      choice.moves.push_back({rank, here == who.end() ? who.front()->node : node, node});
    }
    const bool fits = std::none_of(choice.moves.begin(), choice.moves.end(),
                                   [&](const StateMove& move) { return full.contains(move.to); });
    if (fits) return choice;
  }
  return std::nullopt;
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
