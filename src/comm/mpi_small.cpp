// all_reduce, broadcast and barrier: what fits into a box at a time. Members of a node lay what they bring on
// their mailboxes, the first of them puts it together and exchanges it with the first of the other nodes, and
// lays the result on its mailbox. A box is written again only when all of the node have entered the next one,
// so nobody has to say that it has read.
#include <algorithm>
#include <cstring>

#include "src/comm/mpi_group.hpp"

namespace holdfast::comm {

void MpiGroup::begin_box(const Operation& operation) {
  ++tick_;
  brought_ = false;
  box_count_ = std::min(box_bytes, operation.bytes.size() - box_at_);
  Mailbox& mailbox = *mailboxes_[me_];
  if (box_count_ > 0 && (operation.kind != Collective::broadcast || operation.root == me_))
    std::memcpy(mailbox.in, operation.bytes.data() + box_at_, box_count_);
  mailbox.what.store(operation.what, std::memory_order_relaxed);
  publish(&Mailbox::ready);
}

bool MpiGroup::step_small(const Operation& operation) {
  const Mailbox& first = *mailboxes_[leader_];
  if (me_ == leader_) {
    if (!brought_) {
      if (!all_arrived()) return false;
      bring(operation);
      brought_ = true;
    }
    if (!messages_.none()) return false;
    std::byte* result = mailboxes_[me_]->out;
    if (box_count_ > 0) {
      std::memcpy(result, combined_.data(), box_count_);
      for (std::size_t i = 0; i < leaders_.size(); ++i)
        if (brings(operation, leaders_[i])) combine(operation, result, from_leaders_.data() + i * box_bytes);
    }
    publish(&Mailbox::done);
  } else if (first.done.load(std::memory_order_acquire) < tick_) {
    return false;
  }
  if (box_count_ > 0) std::memcpy(operation.bytes.data() + box_at_, first.out, box_count_);
  box_at_ += box_count_;
  if (box_at_ < operation.bytes.size())
    begin_box(operation);
  else
    phase_ = Phase::waiting;
  return true;
}

/// The node of `leader` has something to add to the result.
bool MpiGroup::brings(const Operation& operation, int leader) const {
  if (operation.kind != Collective::broadcast) return true;
  const auto node = [&](int member) { return world_->node_of[ranks_[member]]; };
  return node(operation.root) == node(leader);
}

void MpiGroup::bring(const Operation& operation) {
  combined_.resize(box_bytes);
  from_leaders_.resize(leaders_.size() * box_bytes);
  messages_.reserve(2 * leaders_.size());
  bool first = true;
  for (int member : local_) {
    if (operation.kind == Collective::broadcast && member != operation.root) continue;
    const std::byte* in = mailboxes_[member]->in;
    if (first && box_count_ > 0) std::memcpy(combined_.data(), in, box_count_);
    if (!first) combine(operation, combined_.data(), in);
    first = false;
  }
  const auto bytes = static_cast<std::int64_t>(box_count_);
  for (std::size_t i = 0; i < leaders_.size(); ++i) {
    const int rank = ranks_[leaders_[i]];
    messages_.receive(from_leaders_.data() + i * box_bytes, brings(operation, leaders_[i]) ? bytes : 0, rank,
                      tag(operation), static_cast<std::uint32_t>(leaders_[i]) << 1);
    messages_.send(combined_.data(), brings(operation, me_) ? bytes : 0, rank, tag(operation), 0);
  }
}

/// Exact, so the order does not matter.
void MpiGroup::combine(const Operation& operation, std::byte* into, const std::byte* from) const {
  if (operation.kind == Collective::broadcast) {
    std::memcpy(into, from, box_count_);
    return;
  }
  for (std::size_t at = 0; at < box_count_; at += sizeof(std::uint64_t)) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, into + at, sizeof a);
    std::memcpy(&b, from + at, sizeof b);
    a = operation.how == Scalar::sum ? a + b : std::max(a, b);
    std::memcpy(into + at, &a, sizeof a);
  }
}

}  // namespace holdfast::comm
