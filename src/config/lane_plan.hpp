#pragma once
// The order in which gradients are added, whatever the layout (numerics rules 1-6): micro-batches into lanes
// from left to right, lanes into a tree as a binary counter counts. Pure: everybody can compute what
// everybody holds, and the planner refuses what ranks would refuse.
#include <cstdint>
#include <vector>

#include "src/base/ordered_sum.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// Lanes [first, first + count) already added up: an inner point of the tree. count is a power of two that
/// divides first.
struct PartialSum {
  int first = 0, count = 1;
  bool operator==(const PartialSum&) const = default;
};

/// What becomes of terms in order: micro-batches of a micro-step, or the partial sums of all replicas. Sum i
/// of the stack lies in accumulator i. An accumulation lane is a run of consecutive micro-batches whose
/// gradients are added one after another.
struct Additions {
  int before = 0;               ///< sums on the stack
  std::vector<Addition> terms;  ///< of each
};

/// Partial sums in the order of a binary counter: equal aligned neighbours merge. Holds the shape only; sum i
/// lies in accumulator i.
class Counter {
 public:
  Counter() = default;
  /// After lanes [first, end) were pushed one by one.
  Counter(int first, int end);
  /// Appends a sum to the right; returns how many merges follow (each is `merge` of the then last two).
  int push(PartialSum sum);
  int size() const { return static_cast<int>(sums_.size()); }
  const std::vector<PartialSum>& sums() const { return sums_; }

 private:
  std::vector<PartialSum> sums_;
};

/// How `micro_batches` gradients of an optimizer step fall to `replicas` groups of `group` ranks.
class LanePlan {
 public:
  /// lanes = 0: one per micro-batch, which depends on the batch alone and suits every layout. Throws Error
  /// (usage) when lanes do not divide micro-batches, when a group's ranks do not, or when there are too few
  /// micro-batches or lanes for all replicas.
  LanePlan(int micro_batches, int lanes, int replicas, int group)
      : LanePlan(micro_batches, lanes, replicas, group, 1) {}
  LanePlan(const Train& train, int replicas, int group)
      : LanePlan(config::micro_batches(train), train.lanes, replicas, group, train.micro_batch) {}

  int micro_batches() const { return micro_batches_; }
  int lanes() const { return lanes_; }
  int micro_batches_per_lane() const { return micro_batches_ / lanes_; }
  /// Replicas share the lanes out in parts of as many lanes as give each rank of a group the same number of
  /// micro-batches.
  int parts() const { return lanes_ / part_; }
  /// Replica g owns parts [g * parts / replicas, (g + 1) * parts / replicas).
  int first_lane(int replica) const {
    return static_cast<int>(std::int64_t{replica} * parts() / replicas_) * part_;
  }
  int micro_steps(int replica) const;
  /// Member `member` of the replica computes this micro-batch in micro-step `micro_step`.
  int micro_batch(int replica, int micro_step, int member) const;
  /// How the gradients of a micro-step are added to the accumulators.
  Additions additions(int replica, int micro_step) const;
  /// Accumulators that last from micro-step to micro-step: as many as the replica needs that needs most.
  int accumulators() const;
  /// Those behind them, which lie in memory between two passes of a micro-step only (base/ordered_sum.hpp).
  int temporaries() const;
  /// Elements of a tensor that are added at a time where there are temporaries, so that these are small;
  /// 0 where there are none. `largest`: elements of a rank's largest slice.
  std::int64_t added_at_once(std::int64_t largest) const;
  /// What a replica holds after its last micro-step: sum i in accumulator i.
  std::vector<PartialSum> partial_sums(int replica) const;
  /// Sums of final_additions() that lie in memory, between two passes only.
  int final_temporaries() const;
  /// How the partial sums of all replicas become the total: in order, and the rest of the counter is merged
  /// from right to left.
  Additions final_additions() const;

 private:
  /// `micro_batch`: sequences, for what errors suggest.
  LanePlan(int micro_batches, int lanes, int replicas, int group, int micro_batch);

  int micro_batches_, lanes_, replicas_, group_;
  int part_;  ///< lanes
};

}  // namespace holdfast::config
