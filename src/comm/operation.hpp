#pragma once
// A collective as data: what the caller asked for, kept until the communication thread has done it. The lists
// lie with the queue.
#include <cstdint>
#include <span>

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
  std::int64_t node_stride = 0;
  std::span<const int> arrays_of;  ///< by member: arrays that it brings per tensor
  Folder* folder = nullptr;
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

}  // namespace holdfast::comm
