#include "launcher/agent/ranks/signs_of_life.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace holdfast::launcher {
namespace {

constexpr double late_s = 5;  // a look that begins so long after the one before

}  // namespace

bool SignsOfLife::Bytes::live(std::int64_t bytes, double seconds) {
  const double rate = static_cast<double>(bytes) / seconds;
  most = std::max(most * std::exp2(-seconds / fades_s), rate);
  return rate > noise && rate > rare * most;
}

void SignsOfLife::look_begins(double now) {
  const double gap_s = now - std::exchange(began_at_, now).value_or(now);
  if (gap_s <= late_s) return;
  for (auto& [number, rank] : ranks_) rank.since = std::min(rank.since + gap_s, now);
}

void SignsOfLife::take(const Growths& growths) {
  const auto& [now, seconds, ranks] = growths;
  blind_ = seconds <= 0;
  if (blind_) return;
  std::erase_if(ranks_, [&](const auto& rank) { return !growths.ranks.contains(rank.first); });
  for (const auto& [number, grown] : ranks) {
    auto [at, is_new] = ranks_.try_emplace(number);
    Rank& rank = at->second;
    if (is_new) rank.since = now - seconds;
    rank.cpu_share = 1e-3 * static_cast<double>(grown.cpu_ms) / seconds;
    rank.state = grown.state;
    rank.touches = rank.touches || grown.touched;
    const bool files = rank.files.live(grown.files, seconds),
               network = rank.network.live(grown.network, seconds),
               rdma = rank.rdma.live(grown.rdma, seconds),
               nvlinks = rank.nvlinks.live(grown.nvlinks, seconds);
    const char* sign = grown.touched       ? "heartbeat"
                       : rank.touches      ? nullptr
                       : grown.printed > 0 ? "output"
                       : network           ? "network"
                       : rdma || nvlinks   ? "links"
                       : files             ? "files"
                                           : nullptr;
    if (!sign) continue;
    rank.sign = sign;
    rank.since = now;
  }
}

void SignsOfLife::cannot_look(const std::vector<WatchedRank>& ranks, double now) {
  blind_ = false;
  for (const auto& place : ranks) {
    auto [at, is_new] = ranks_.try_emplace(place.rank);
    if (is_new) at->second.since = now;
    at->second.state = control::RankSeen::look_hangs;
  }
}

std::vector<control::RankSeen> SignsOfLife::seen(int attempt, double now) const {
  std::vector<control::RankSeen> out;
  if (blind_) return out;
  for (const auto& [number, rank] : ranks_)
    out.push_back({number, attempt, std::llround(1e3 * std::max(0.0, now - rank.since)), rank.sign,
                   std::llround(100 * rank.cpu_share), std::string(1, rank.state)});
  return out;
}

}  // namespace holdfast::launcher
