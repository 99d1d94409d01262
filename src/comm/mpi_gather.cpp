// all_gather: members of this node copy each other's parts; parts of other nodes arrive where they belong.
#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/comm/copy_lines.hpp"
#include "src/comm/mpi_group.hpp"
#include "src/comm/mpi_messages.hpp"

namespace holdfast::comm {
namespace {
constexpr std::int64_t copy_bytes = 1 << 19;     // copied before other groups have their turn
constexpr std::int64_t message_bytes = 1 << 20;  // of one message
constexpr std::int64_t larger_than_caches = 4 << 20;
}  // namespace

void MpiGroup::begin_gather(const Operation& operation) {
  std::int64_t bytes = 0;
  for (const Extent& tensor : operation.tensors) bytes += tensor.elements * bytes_of(tensor.type);
  past_caches_ = bytes > larger_than_caches;
  std::fill(copied_.begin(), copied_.end(), Cursor{});
  messages_.reserve(2 * message_window * remote_.size());
}

bool MpiGroup::step_gather(const Operation& operation) {
  if (phase_ == Phase::leaving) {
    settle();
    return phase_ == Phase::waiting;
  }
  bool all = true;
  bool moved = post_gather(operation, false, all);
  moved |= post_gather(operation, true, all);
  moved |= copy_some(operation, all);
  if (all && messages_.none()) {
    settle();
    moved = true;
  }
  return moved;
}

bool MpiGroup::copy_some(const Operation& operation, bool& all) {
  bool moved = false;
  std::int64_t budget = copy_bytes;
  const auto own = as_size(std::find(local_.begin(), local_.end(), me_) - local_.begin());
  for (std::size_t distance = 1; distance < local_.size(); ++distance) {  // everybody begins elsewhere
    const std::size_t peer = (own + distance) % local_.size();
    Cursor& at = copied_[peer];
    if (at.tensor == operation.tensors.size()) continue;
    if (budget <= 0 || !arrived(local_[peer])) {
      all = false;
      continue;
    }
    for (; at.tensor < operation.tensors.size(); ++at.tensor, at.first = 0) {
      const Extent& tensor = operation.tensors[at.tensor];
      const std::int64_t size = bytes_of(tensor.type), part = part_of(tensor, local_[peer]);
      const std::int64_t count = std::min(part - at.first, (budget + size - 1) / size);
      if (count > 0) {
        auto* to = static_cast<std::byte*>(tensor.data) + (local_[peer] * tensor.part + at.first) * size;
        copy_lines(to, peer_address(local_[peer], to), as_size(count * size), past_caches_);
        at.first += count;
        budget -= count * size;
        moved = true;
      }
      if (at.first < part) break;
    }
    if (at.tensor < operation.tensors.size()) all = false;
  }
  return moved;
}

/// Every member goes through tensors, then pieces of a part, then peers, so that what one waits for is never
/// behind what waits for it.
bool MpiGroup::post_gather(const Operation& operation, bool sends, bool& all) {
  bool moved = false;
  Cursor& at = sends ? sent_ : received_;
  const std::size_t limit = message_window * remote_.size();
  for (; at.tensor < operation.tensors.size(); ++at.tensor, at.first = 0) {
    const Extent& tensor = operation.tensors[at.tensor];
    const std::int64_t size = bytes_of(tensor.type), piece = message_bytes / size;
    for (; at.first < tensor.part; at.first += piece, at.peer = 0)
      for (; at.peer < remote_.size(); ++at.peer) {
        const int peer = peer_at(at.peer), owner = sends ? me_ : peer;
        const std::int64_t count = std::min(piece, part_of(tensor, owner) - at.first);
        if (count <= 0) continue;
        if ((sends ? messages_.sends() : messages_.receives()) == limit) {
          all = false;
          return moved;
        }
        auto* data = static_cast<std::byte*>(tensor.data) + (owner * tensor.part + at.first) * size;
        const int rank = ranks_[peer];
        if (sends) {
          messages_.send(data, count * size, rank, tag(operation), 0);
        } else {
          messages_.receive(data, count * size, rank, tag(operation), static_cast<std::uint32_t>(peer) << 1);
          await(peer);
        }
        moved = true;
      }
  }
  return moved;
}

}  // namespace holdfast::comm
