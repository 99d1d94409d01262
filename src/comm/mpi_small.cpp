// all_reduce, broadcast and barrier: what fits into a box at a time. Members of a node lay what they bring on
// their mailboxes, the first of them puts it together, exchanges it with the first of other nodes
// (small_exchanges.hpp), and lays the result on its mailbox. Nodes without the root of a broadcast bring
// zeros. A box is written again only when all of the node have entered the next one, so nobody has to say
// that it has read.
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
    for (; exchange_ < exchanges_.size(); post_exchange(operation)) {
      if (!messages_.none()) return false;
      take_exchange(operation);
    }
    if (box_count_ > 0) std::memcpy(mailboxes_[me_]->out, combined_.data(), box_count_);
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

void MpiGroup::bring(const Operation& operation) {
  combined_.assign(box_bytes, std::byte{0});
  inbound_.resize(box_bytes);
  messages_.reserve(2);
  bool first = true;
  for (int member : local_) {
    if (operation.kind == Collective::broadcast && member != operation.root) continue;
    const std::byte* in = mailboxes_[member]->in;
    if (first && box_count_ > 0) std::memcpy(combined_.data(), in, box_count_);
    if (!first) combine(operation, combined_.data(), in);
    first = false;
  }
  exchange_ = 0;
  post_exchange(operation);
}

/// Begins the exchange that is next, if there is one.
void MpiGroup::post_exchange(const Operation& operation) {
  if (exchange_ == exchanges_.size()) return;
  const SmallExchange& exchange = exchanges_[exchange_];
  const int member = leaders_[exchange.node];
  const auto bytes = static_cast<std::int64_t>(box_count_);
  if (exchange.receives)
    messages_.receive(inbound_.data(), bytes, ranks_[member], tag(operation),
                      static_cast<std::uint32_t>(member) << 1);
  if (exchange.sends) messages_.send(combined_.data(), bytes, ranks_[member], tag(operation), 0);
}

void MpiGroup::take_exchange(const Operation& operation) {
  const SmallExchange& exchange = exchanges_[exchange_++];
  if (!exchange.receives || box_count_ == 0) return;
  if (exchange.replaces)
    std::memcpy(combined_.data(), inbound_.data(), box_count_);
  else
    combine(operation, combined_.data(), inbound_.data());
}

/// Exact, so the order does not matter.
void MpiGroup::combine(const Operation& operation, std::byte* into, const std::byte* from) const {
  if (operation.kind == Collective::broadcast) {
    for (std::size_t at = 0; at < box_count_; ++at) into[at] |= from[at];  // one of the two is all zeros
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
