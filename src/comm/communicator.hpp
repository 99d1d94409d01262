#pragma once
// What ranks do together. One small surface for every way of doing it: beside each other in shared memory and
// with messages between nodes (mpi_communicator), alone (solo_communicator); the trainer never asks which.
//
// Every call is collective over the group: all members make the same calls in the same order. The bulk
// operations (all_gather, ordered_reduce_scatter, exchange_partial_sums) only enqueue: they run beside the
// caller, in the order of their calls within a communicator, independently of other communicators, and the
// event that is returned passes when this rank's results are there *and* its memory may be used again. The
// small ones (all_reduce, broadcast, barrier, split) wait. Whatever does not end within the group's time
// limit throws Error (runtime) that names the operation, from whoever waits for it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/tensor/dtype.hpp"
#include "src/tensor/stream.hpp"

namespace holdfast::comm {

using tensor::DType;
using tensor::Event;

/// Bytes this rank has sent to others (or that others of its node have read from it), by operation. Complete
/// when the operations' events have passed.
struct Wire {
  std::int64_t all_gather = 0, ordered_reduce_scatter = 0, exchange_partial_sums = 0, all_reduce = 0,
               broadcast = 0;
  std::int64_t total() const {
    return all_gather + ordered_reduce_scatter + exchange_partial_sums + all_reduce + broadcast;
  }
  bool operator==(const Wire&) const = default;
};

/// A whole tensor of `elements` in symmetric memory; member r's part is [r * part, (r + 1) * part), cut at
/// `elements`: short or empty at the end. Nothing behind `elements` is touched, but by all_gather().
struct Extent {
  void* data = nullptr;
  std::int64_t elements = 0, part = 0;
  DType type = DType::fp32;
};

/// Adds up this member's part of what all members brought. Called by whoever does the operation (on the host
/// the communication thread): allocates nothing, waits for nothing, enqueues on `stream`, and outlives the
/// event of its operation.
class OrderedReducer {
 public:
  virtual ~OrderedReducer() = default;
  /// Elements [first, first + count) of this member's part of tensor `tensor` (an index into the call's
  /// list), once per contribution, in canonical order: members ascending, each member's arrays in their
  /// order. `sources` have the tensor's type; the list is valid during the call only, the arrays until
  /// `stream` has passed. Over one operation every element of the part comes exactly once.
  virtual void reduce(tensor::Stream& stream, int tensor, std::int64_t first, std::int64_t count,
                      std::span<const void* const> sources) = 0;
};

enum class Scalar { sum, max };

class Communicator {
 public:
  /// No reduction on the host gets more elements at once: they stay in the cache.
  static constexpr std::int64_t largest_reduction = 1 << 16;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Memory that the bulk operations may use, zeroed, aligned to a page: shared by the ranks of a node, so
  /// that they read each other's without a copy through a message. Collective over the *world*, once, with
  /// the same number of bytes on every rank; tensors of one call lie at the same offsets on all members.
  /// Lives as long as the communicators. An Error (runtime) says how much was asked for when there is not
  /// enough.
  virtual std::span<std::byte> symmetric_memory(std::int64_t bytes) = 0;

  /// Before: each member has its own part in place. After: every member has all of every tensor. Starts after
  /// `after`. Symmetric memory has room for whole parts of all members, and what is behind `elements` there
  /// is of no use to anybody, or the same on all members: one's may go to the others.
  virtual Event all_gather(std::span<const Extent> tensors, const Event& after = {}) = 0;
  /// Each member brings the gradients of one micro-batch (a whole one per tensor) and adds up its own part of
  /// all members' gradients (numerics rule 5).
  virtual Event ordered_reduce_scatter(std::span<const Extent> gradients, OrderedReducer& reducer,
                                       const Event& after = {}) = 0;
  /// Member r brings sums_of[r] partial sums per tensor: `tensors` gives the first, the k-th behind it lies
  /// k * `array_stride` elements further. Each member adds up its own part of all of them. fp32.
  virtual Event exchange_partial_sums(std::span<const Extent> tensors, std::int64_t array_stride,
                                      std::span<const int> sums_of, OrderedReducer& reducer,
                                      const Event& after = {}) = 0;

  /// Word by word, modulo 2^64 or the largest: exact, whatever the order (numerics rule 7).
  virtual void all_reduce(std::span<std::uint64_t> words, Scalar how) = 0;
  /// `bytes` of member `root` to everybody.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual void barrier() = 0;

  /// Members with equal `color` form a group, ordered by `key`. `name` is what errors and records call it.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;
  virtual const Wire& wire() const = 0;
  /// Since the start, over all groups of the world: nanoseconds in which a bulk operation of this rank
  /// awaited a message of another node, at the place of that node's lowest rank; other places keep what they
  /// have. False: not known, as where a library of its own carries the messages. For the world; `by_rank` has
  /// a place for every rank of it.
  virtual bool awaited(std::span<std::int64_t> by_rank) const {
    static_cast<void>(by_rank);
    return false;
  }
  /// Ends all ranks of the job. Never returns to a working state; does nothing when there is nobody else.
  virtual void abort(std::string_view why) noexcept = 0;
};

/// Text of any length from `root` to everybody.
std::string broadcast_text(Communicator& group, std::string text, int root);

}  // namespace holdfast::comm
