#include "launcher/agent/ranks/local_ranks.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {

LocalRank& LocalRanks::at(int rank, int attempt) {
  LocalRank& r = ranks_[rank];
  if (r.attempt != attempt) {
    r = LocalRank{};
    r.rank = rank;
    r.attempt = attempt;
    r.progress.rank = rank;
    r.progress.attempt = attempt;
  }
  return r;
}

LocalRank* LocalRanks::find(int rank, int attempt) {
  const auto it = ranks_.find(rank);
  return it != ranks_.end() && it->second.attempt == attempt ? &it->second : nullptr;
}

void LocalRanks::forget_older(int attempt) {
  std::erase_if(ranks_, [&](const auto& entry) { return entry.second.attempt < attempt; });
}

void LocalRanks::take(LocalRank& rank, const control::RankProgress& said, Clock::time_point now) {
  if (!rank.heard || rank.progress.step != said.step || rank.progress.phase != said.phase ||
      rank.progress.moves != said.moves)
    rank.moved = now;
  rank.heard = now;
  rank.progress.step = said.step;
  rank.progress.phase = said.phase;
  rank.progress.compute_us = said.compute_us;
  rank.progress.moves = said.moves;
}

std::vector<control::Message> LocalRanks::state_messages() const {
  std::vector<control::Message> out;
  for (const auto& [number, r] : ranks_) {
    if (r.started) out.emplace_back(control::RankStarted{r.rank, r.attempt, r.pid});
    if (r.restored) out.emplace_back(*r.restored);
    if (r.doubt) out.emplace_back(*r.doubt);
    for (const auto what : r.heard_orders) out.emplace_back(control::RankHeard{r.rank, r.attempt, what});
    if (r.finished) out.emplace_back(*r.finished);
    if (r.failed) out.emplace_back(*r.failed);
    if (r.exited) out.emplace_back(*r.exited);
  }
  return out;
}

std::vector<control::RankProgress> LocalRanks::live(int attempt) const {
  std::vector<control::RankProgress> out;
  for (const auto& [number, r] : ranks_)
    if (r.attempt == attempt && r.started && !r.ended) out.push_back(r.progress);
  return out;
}

bool LocalRanks::any_lives() const {
  return std::any_of(begin(), end(), [](const auto& entry) { return entry.second.lives(); });
}

std::size_t LocalRanks::living(int attempt) const {
  return as_size(std::count_if(begin(), end(), [&](const auto& entry) {
    return entry.second.attempt == attempt && !entry.second.ended;
  }));
}

void LocalRanks::tell(const control::Message& message, int attempt) {
  const std::string line = control::encode(message);
  for (auto& [number, r] : ranks_)
    if (r.attempt == attempt && r.linked()) r.link->send(line);
}

void LocalRanks::forget_heard(std::initializer_list<control::RankHeard::What> orders) {
  for (auto& [number, r] : ranks_)
    for (const auto what : orders) r.heard_orders.erase(what);
}

}  // namespace holdfast::launcher
