#include "src/train/engine/accuse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

/// The seal that more ranks have than any other, if there is one.
std::optional<std::uint64_t> majority(const std::map<std::uint64_t, int>& votes) {
  std::optional<std::uint64_t> best;
  int most = 0;
  for (const auto& [seal, count] : votes) {
    if (count == most) best.reset();
    if (count > most) {
      best = seal;
      most = count;
    }
  }
  return best;
}

}  // namespace

bool replicas_differ(std::span<const std::uint64_t> seals, std::span<const int> kind_of) {
  for (std::size_t rank = 0; rank < seals.size(); ++rank)
    if (seals[rank] != seals[kind_of[rank]]) return true;
  return false;
}

std::vector<int> accuse_replicas(std::span<const std::uint64_t> seals, std::span<const int> kind_of,
                                 std::span<const std::uint64_t> contradict_themselves) {
  expects(seals.size() == kind_of.size() && seals.size() == contradict_themselves.size(),
          "something of every rank");
  std::map<int, std::map<std::uint64_t, int>> votes;
  std::map<int, int> self_made;  // of each kind, so many contradict themselves
  for (std::size_t rank = 0; rank < seals.size(); ++rank) {
    ++votes[kind_of[rank]][seals[rank]];
    self_made[kind_of[rank]] += contradict_themselves[rank] != 0 ? 1 : 0;
  }
  std::vector<int> out;
  for (std::size_t rank = 0; rank < seals.size(); ++rank) {
    const auto& of_kind = votes[kind_of[rank]];
    if (of_kind.size() == 1) continue;
    const auto most = majority(of_kind);
    const bool wrong = most                           ? seals[rank] != *most
                       : self_made[kind_of[rank]] > 0 ? contradict_themselves[rank] != 0
                                                      : true;
    if (wrong) out.push_back(static_cast<int>(rank));
  }
  return out;
}

MicroBatchBlame accuse_micro_batch(const MicroBatchHashes& h) {
  expects(h.owner != h.other, "there is a difference");
  MicroBatchBlame blame{h.owner != h.owner_again, h.other != h.other_again};
  if (blame.owner || blame.other) return blame;
  if (h.third == h.owner) return {false, true};
  if (h.third == h.other) return {true, false};
  return {true, true};
}

NotFiniteBlame accuse_not_finite(const NotFiniteCounts& counts, int distance) {
  const auto any = [](const std::vector<std::uint64_t>& of) {
    return std::ranges::any_of(of, [](std::uint64_t n) { return n > 0; });
  };
  if (any(counts.both)) return {true, {}};
  if (distance == 0) return {};
  const std::size_t world = counts.owner.size();
  std::set<int> accused;
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (counts.owner[rank] > 0) accused.insert(static_cast<int>(rank));
    if (counts.other[rank] > 0) accused.insert(static_cast<int>((rank + as_size(distance)) % world));
  }
  if (accused.empty())
    for (std::size_t rank = 0; rank < world; ++rank)
      if (counts.loss[rank] > 0) accused.insert(static_cast<int>(rank));
  return {false, {accused.begin(), accused.end()}};
}

int second_distance(int world, int ranks_per_node) {
  return world > ranks_per_node ? ranks_per_node : world > 1 ? 1 : 0;
}

std::optional<int> third_distance(int world, int ranks_per_node) {
  if (world >= 3 * ranks_per_node) return 2 * ranks_per_node;
  return std::nullopt;
}

std::int64_t vouched_by_micro_batch(std::int64_t step, int every) {
  if (every == 0) return step;
  return std::max<std::int64_t>(0, step / every * every - 1);
}

std::string ranks_text(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  std::string out = "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return out;
}

}  // namespace holdfast::train
