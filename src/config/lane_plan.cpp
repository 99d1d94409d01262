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

/// The whole sum `sum` enters the counter: a copy and the merges that follow. The first merge is carried out
/// with the copy, as one addition: a + b is b + a.
void enter(std::vector<LaneOp>& out, Counter& counter, PartialSum sum, int source) {
  const int accumulator = counter.size(), merges = counter.push(sum);
  if (merges == 0) out.push_back({LaneOp::Kind::copy, accumulator, source});
  for (int m = 0; m < merges; ++m)
    out.push_back(
        {m == 0 ? LaneOp::Kind::add : LaneOp::Kind::merge, accumulator - 1 - m, m == 0 ? source : 0});
}

}  // namespace

std::vector<LaneOp> LanePlan::additions(int replica, int micro_step) const {
  const int length = micro_batches_per_lane(), at = micro_batch(replica, micro_step, 0);
  Counter counter(first_lane(replica), at / length);  // as it stands before this micro-step
  std::vector<LaneOp> out;
  for (int i = 0; i < group_; ++i) {
    const int place = (at + i) % length, lane = (at + i) / length, accumulator = counter.size();
    if (length == 1) {
      enter(out, counter, {lane, 1}, i);
      continue;
    }
    out.push_back({place == 0 ? LaneOp::Kind::copy : LaneOp::Kind::add, accumulator, i});
    if (place + 1 < length) continue;
    const int merges = counter.push({lane, 1});
    for (int m = 0; m < merges; ++m) out.push_back({LaneOp::Kind::merge, accumulator - 1 - m, 0});
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
  int touched = 0;
  for (int g = 0; g < replicas_; ++g)
    for (int m = 0; m < micro_steps(g); ++m) touched = std::max(touched, accumulators_of(additions(g, m)));
  return std::max(0, touched - accumulators());
}

std::int64_t LanePlan::added_at_once(std::int64_t largest) const {
  constexpr std::int64_t most = 1 << 22;  // 16 MB: a GPU's cache holds a few, and launches are not many
  return temporaries() > 0 ? std::min(largest, most) : 0;
}

std::vector<PartialSum> LanePlan::partial_sums(int replica) const {
  return Counter(first_lane(replica), first_lane(replica + 1)).sums();
}

std::vector<LaneOp> LanePlan::final_additions() const {
  std::vector<LaneOp> out;
  Counter counter;
  int source = 0;
  for (int g = 0; g < replicas_; ++g)
    for (const PartialSum& sum : partial_sums(g)) enter(out, counter, sum, source++);
  for (int accumulator = counter.size() - 2; accumulator >= 0; --accumulator)
    out.push_back({LaneOp::Kind::merge, accumulator, 0});
  return out;
}

int accumulators_of(const std::vector<LaneOp>& additions) {
  int touched = 0;
  for (const LaneOp& op : additions)
    touched = std::max(touched, op.accumulator + (op.kind == LaneOp::Kind::merge ? 2 : 1));
  return touched;
}

}  // namespace holdfast::config
