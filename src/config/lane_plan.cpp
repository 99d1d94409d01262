#include "src/config/lane_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/base/error.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {

Counter::Counter(int first, int end) {
  for (int at = first; at < end;) {
    int count = 1;  // the largest aligned one that begins here
    while (at % (2 * count) == 0 && count <= (end - at) / 2) count *= 2;
    sums_.push_back({at, count});
    at += count;
  }
}

int Counter::push(PartialSum sum) {
  int merges = 0;
  while (!sums_.empty()) {
    const PartialSum left = sums_.back();
    const bool neighbours = left.count == sum.count && left.first + left.count == sum.first;
    if (!neighbours || left.first % (2 * left.count) != 0) break;
    sum = {left.first, 2 * left.count};
    sums_.pop_back();
    ++merges;
  }
  sums_.push_back(sum);
  return merges;
}

LanePlan::LanePlan(int micro_batches, int lanes, int replicas, int group, int micro_batch)
    : micro_batches_(micro_batches),
      lanes_(lanes > 0 ? lanes : micro_batches),
      replicas_(replicas),
      group_(group) {
  expects(micro_batches > 0 && replicas > 0 && group > 0, "micro-batches, replicas and ranks");
  const auto use = [&](std::int64_t batches, const char* or_else) {
    return fmt::format("Use train.global_batch = {}{}", batches * micro_batch, or_else);
  };
  if (micro_batches_ % lanes_ != 0)
    refuse("the micro-batches of a step are not a whole number of lanes",
           fmt::format("{} micro-batches, {} lanes", micro_batches_, lanes_),
           use((std::int64_t{micro_batches_} / lanes_ + 1) * lanes_, "?"));
  if (const std::int64_t ranks = std::int64_t{replicas_} * group_; micro_batches_ < ranks)
    refuse("there are fewer micro-batches than ranks",
           fmt::format("{} micro-batches, {} ranks; each rank computes at least one in a step",
                       micro_batches_, ranks),
           use(ranks, ", or fewer ranks?"));
  if (micro_batches_ % group_ != 0)
    refuse("the micro-batches of a step are not a multiple of the ranks of a shard group",
           fmt::format("{} micro-batches, groups of {} ranks; they compute equally many", micro_batches_,
                       group_),
           use((std::int64_t{micro_batches_} / group_ + 1) * group_, "?"));
  part_ = group_ / std::gcd(micro_batches_per_lane(), group_);
  if (parts() < replicas_)
    refuse("there are too few lanes for the replicas",
           fmt::format("{} lanes of {} micro-batches, {} replicas of {} ranks", lanes_,
                       micro_batches_per_lane(), replicas_, group_),
           "Leave train.lanes out, or use larger shard groups?");
}

int LanePlan::micro_steps(int replica) const {
  return (first_lane(replica + 1) - first_lane(replica)) * micro_batches_per_lane() / group_;
}

int LanePlan::micro_batch(int replica, int micro_step, int member) const {
  return first_lane(replica) * micro_batches_per_lane() + micro_step * group_ + member;
}

namespace {

/// A whole sum enters the counter. With the first merge it is added, and not copied before: a + b is b + a.
Addition enter(Counter& counter, PartialSum sum) {
  const int merges = counter.push(sum);
  return {merges == 0, std::max(0, merges - 1)};
}

}  // namespace

Additions LanePlan::additions(int replica, int micro_step) const {
  const int length = micro_batches_per_lane(), at = micro_batch(replica, micro_step, 0);
  Counter counter(first_lane(replica), at / length);
  Additions out{counter.size() + (at % length == 0 ? 0 : 1), {}};
  for (int i = at; i < at + group_; ++i) {
    const PartialSum lane{i / length, 1};
    if (length == 1)
      out.terms.push_back(enter(counter, lane));
    else
      out.terms.push_back({i % length == 0, i % length + 1 < length ? 0 : counter.push(lane)});
  }
  return out;
}

int LanePlan::accumulators() const {
  int most = 1;
  for (int g = 0; g < replicas_; ++g)
    for (int end = micro_batch(g, 1, 0), m = 0; m < micro_steps(g); ++m, end += group_) {
      const int open = end % micro_batches_per_lane() == 0 ? 0 : 1;
      most = std::max(most, Counter(first_lane(g), end / micro_batches_per_lane()).size() + open);
    }
  return most;
}

int LanePlan::temporaries() const {
  int most = 0;
  for (int g = 0; g < replicas_; ++g)
    for (int m = 0; m < micro_steps(g); ++m) {
      const Additions of = additions(g, m);
      most = std::max(most, sums_in_memory(of.terms, of.before));
    }
  return std::max(0, most - accumulators());
}

std::int64_t LanePlan::added_at_once(std::int64_t largest) const {
  constexpr std::int64_t most = 1 << 22;  // 16 MB: a GPU's cache holds a few, and launches are not many
  return temporaries() > 0 ? std::min(largest, most) : 0;
}

std::vector<PartialSum> LanePlan::partial_sums(int replica) const {
  return Counter(first_lane(replica), first_lane(replica + 1)).sums();
}

int LanePlan::final_temporaries() const {
  const auto terms = final_additions().terms;
  return pass_of(terms) < terms.size() ? sums_in_memory(terms, 0) : 0;
}

Additions LanePlan::final_additions() const {
  Additions out;
  Counter counter;
  for (int g = 0; g < replicas_; ++g)
    for (const PartialSum& sum : partial_sums(g)) out.terms.push_back(enter(counter, sum));
  out.terms.back().merges += counter.size() - 1;
  return out;
}

}  // namespace holdfast::config
