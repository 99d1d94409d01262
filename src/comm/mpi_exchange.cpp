// ordered_reduce_scatter and exchange_partial_sums: this member's part of everybody's arrays, piece by piece,
// handed to the OrderedReducer in canonical order. Arrays of this node are read where they are; pieces of
// others come into one of two inboxes while the other is added up.
#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/comm/mpi_group.hpp"
#include "src/comm/mpi_messages.hpp"

namespace holdfast::comm {
namespace {
constexpr std::int64_t inbox_elements =
    4 << 20;  // over all arrays, so that an inbox does not grow with the group
constexpr std::int64_t smallest_piece = 1 << 10;
}  // namespace

void MpiGroup::begin_exchange(const Operation& operation) {
  arrays_ = 0;
  int arrays_of_others = 0;  // that come in messages
  for (int count : operation.arrays_of) arrays_ += count;
  for (int member : remote_) arrays_of_others += operation.arrays_of[member];
  // The same on all members.
  piece_ = std::clamp(inbox_elements / std::max(1, arrays_), smallest_piece, Communicator::largest_reduction);
  inbox_stride_ = piece_ * 4;
  const auto room = as_size(arrays_of_others * inbox_stride_);
  for (auto& inbox : inbox_)
    if (inbox.size() < room) inbox.resize(room);
  sources_.resize(arrays_);
  messages_.reserve(message_window * remote_.size() + 2 * as_size(arrays_of_others));
  posted_ = reduced_ = 0;
  pending_[0] = pending_[1] = 0;
  reducing_ = {};
}

bool MpiGroup::step_exchange(const Operation& operation) {
  if (phase_ == Phase::leaving) {
    settle();
    return phase_ == Phase::waiting;
  }
  bool all = true;
  bool moved = receive_piece(operation);
  moved |= send_pieces(operation, all);
  moved |= reduce_piece(operation);
  if (all && reduced_ == posted_ && piece_at(operation, received_) == 0 && messages_.none()) {
    settle();
    moved = true;
  }
  return moved;
}

/// Elements of the piece of this member's part at the cursor, which skips what is empty; 0: the end.
std::int64_t MpiGroup::piece_at(const Operation& operation, Cursor& cursor) const {
  for (; cursor.tensor < operation.tensors.size(); ++cursor.tensor, cursor.first = 0) {
    const std::int64_t left = part_of(operation.tensors[cursor.tensor], me_) - cursor.first;
    if (left > 0) return std::min(left, piece_);
  }
  return 0;
}

bool MpiGroup::receive_piece(const Operation& operation) {
  bool moved = false;
  for (; posted_ < reduced_ + 2; ++posted_) {
    const std::int64_t count = piece_at(operation, received_);
    if (count == 0) break;
    const std::int64_t bytes = count * bytes_of(operation.tensors[received_.tensor].type);
    const auto half = static_cast<std::uint32_t>(posted_ % 2);
    std::byte* to = inbox_[half].data();
    for (int member : remote_)
      for (int k = 0; k < operation.arrays_of[member]; ++k, to += inbox_stride_) {
        messages_.receive(to, bytes, ranks_[member], tag(operation),
                          static_cast<std::uint32_t>(member) << 1 | half);
        await(member);
        ++pending_[half];
      }
    received_.first += count;
    moved = true;
  }
  return moved;
}

bool MpiGroup::reduce_piece(const Operation& operation) {
  if (reduced_ == posted_ || pending_[reduced_ % 2] != 0 || !all_arrived()) return false;
  const std::int64_t count = piece_at(operation, reducing_);
  const Extent& tensor = operation.tensors[reducing_.tensor];
  const std::int64_t size = bytes_of(tensor.type);
  const std::byte* mine =
      static_cast<const std::byte*>(tensor.data) + (me_ * tensor.part + reducing_.first) * size;
  const std::byte* from_others = inbox_[reduced_ % 2].data();
  std::size_t source = 0;
  for (int member = 0; member < this->size(); ++member)
    for (int k = 0; k < operation.arrays_of[member]; ++k, ++source) {
      if (mailboxes_[member] != nullptr) {
        const std::byte* there = mine + k * operation.array_stride * size;
        sources_[source] = member == me_ ? there : peer_address(member, there);
      } else {
        sources_[source] = from_others;
        from_others += inbox_stride_;
      }
    }
  operation.reducer->reduce(inline_, static_cast<int>(reducing_.tensor), reducing_.first, count, sources_);
  reducing_.first += count;
  ++reduced_;
  return true;
}

bool MpiGroup::send_pieces(const Operation& operation, bool& all) {
  bool moved = false;
  const int arrays = operation.arrays_of[me_];
  for (; sent_.tensor < operation.tensors.size(); ++sent_.tensor, sent_.first = 0) {
    const Extent& tensor = operation.tensors[sent_.tensor];
    const std::int64_t size = bytes_of(tensor.type);
    for (; sent_.first < tensor.part; sent_.first += piece_, sent_.peer = 0)
      for (; sent_.peer < remote_.size(); ++sent_.peer, sent_.array = 0) {
        const int peer = peer_at(sent_.peer);
        const std::int64_t count = std::min(piece_, part_of(tensor, peer) - sent_.first);
        if (count <= 0) continue;
        const std::byte* from =
            static_cast<const std::byte*>(tensor.data) + (peer * tensor.part + sent_.first) * size;
        for (; sent_.array < arrays; ++sent_.array) {
          if (messages_.sends() == message_window * remote_.size()) {
            all = false;
            return moved;
          }
          messages_.send(from + sent_.array * operation.array_stride * size, count * size, ranks_[peer],
                         tag(operation), 0);
          moved = true;
        }
      }
  }
  return moved;
}

}  // namespace holdfast::comm
