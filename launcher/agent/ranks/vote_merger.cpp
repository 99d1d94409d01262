#include "launcher/agent/ranks/vote_merger.hpp"

namespace holdfast::launcher {

bool VoteMerger::take(const control::RankVote& vote, std::size_t living) {
  auto& votes = votes_[{vote.attempt, vote.step}];
  votes[vote.rank] = {vote.ok, vote.payload, vote.stall_us};
  return !vote.ok || votes.size() >= living;
}

std::vector<control::NodeVotes> VoteMerger::untold(int attempt, std::int64_t step) {
  std::vector<control::NodeVotes> out;
  const auto known = votes_.find({attempt, step});
  if (known == votes_.end()) return out;
  for (auto& [rank, vote] : known->second) {
    if (std::exchange(vote.told, true)) continue;
    if (out.empty() || !out.back().has_room_for(vote.payload)) out.push_back({attempt, step, {}, {}});
    out.back().add(rank, vote.ok, vote.payload, vote.stall_us);
  }
  return out;
}

std::vector<control::NodeVotes> VoteMerger::all() {
  std::vector<control::NodeVotes> out;
  for (auto& [of, votes] : votes_) {
    for (auto& [rank, vote] : votes) vote.told = false;
    for (auto& message : untold(of.first, of.second)) out.push_back(std::move(message));
  }
  return out;
}

void VoteMerger::settled(int attempt, std::int64_t step) { votes_.erase({attempt, step}); }

void VoteMerger::forget_older(int attempt) {
  std::erase_if(votes_, [&](const auto& entry) { return entry.first.first < attempt; });
}

}  // namespace holdfast::launcher
