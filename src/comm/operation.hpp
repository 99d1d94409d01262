#pragma once
// A collective as data: what the caller asked for, kept until the communication thread has done it. The lists
// lie with the queue.
#include <algorithm>
#include <cstdint>
#include <span>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::comm {

using flight::Collective;

struct Operation {
  Collective kind = Collective::barrier;
  std::uint64_t number = 0;  ///< 1, 2, ... within the group; also its ticket
  std::uint64_t what = 0;    ///< digest of the arguments that must be equal on all members
  std::int64_t wire_bytes = 0;
  std::int64_t enqueued_ns = 0;
  Event after;
  // The bulk operations
  std::span<const Extent> tensors;
  std::int64_t array_stride = 0;
  std::span<const int> arrays_of;  ///< by member: arrays that it brings per tensor
  OrderedReducer* reducer = nullptr;
  // The small ones: the caller's memory, who waits
  std::span<std::byte> bytes;
  Scalar how = Scalar::sum;
  int root = 0;
};

/// Elements of `member`'s part.
inline std::int64_t part_of(const Extent& tensor, int member) {
  const std::int64_t rest = tensor.elements - member * tensor.part;
  return rest <= 0 ? 0 : rest < tensor.part ? rest : tensor.part;
}

// What member `me` sends (Wire), however its bytes travel; the planner counts the same
// (src/shard/wire_plan.hpp).

/// all_gather: its part, to each of the others.
inline std::int64_t sent_by_gather(std::span<const Extent> tensors, int me, int members) {
  std::int64_t bytes = 0;
  for (const Extent& tensor : tensors) bytes += part_of(tensor, me) * bytes_of(tensor.type) * (members - 1);
  return bytes;
}
/// ordered_reduce_scatter: the others' parts.
inline std::int64_t sent_by_reduce_scatter(std::span<const Extent> gradients, int me) {
  std::int64_t bytes = 0;
  for (const Extent& gradient : gradients)
    bytes += (gradient.elements - part_of(gradient, me)) * bytes_of(gradient.type);
  return bytes;
}
/// exchange_partial_sums: the others' parts of all its arrays. Checks that partial sums are fp32.
inline std::int64_t sent_by_partial_sums(std::span<const Extent> tensors, std::span<const int> sums_of,
                                         int me) {
  for (const Extent& tensor : tensors) expects(tensor.type == DType::fp32, "partial sums are fp32");
  return sent_by_reduce_scatter(tensors, me) * sums_of[me];
}
/// Elements from a member's first partial sum to its last, of the member that brings most.
inline std::int64_t reach_of_partial_sums(std::span<const int> sums_of, std::int64_t array_stride,
                                          int members) {
  expects(sums_of.size() == as_size(members), "a count of partial sums for every member");
  const auto [fewest, most] = std::minmax_element(sums_of.begin(), sums_of.end());
  expects(*fewest >= 0, "counts of partial sums");
  return std::max(0, *most - 1) * array_stride;
}

}  // namespace holdfast::comm
