#pragma once
// What ranks do together. One small surface for every way of doing it: messages (mpi_communicator), alone
// (solo_communicator); the trainer never asks which. Every call is collective over the group, blocks until
// this rank may reuse its buffers, and throws Error (runtime) that names the operation when the group's time
// limit passes.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::comm {

/// Bytes this rank has sent to others, by operation.
struct Wire {
  std::int64_t all_gather = 0, fold_leaves = 0, exchange_nodes = 0, all_reduce = 0, broadcast = 0;
  std::int64_t total() const { return all_gather + fold_leaves + exchange_nodes + all_reduce + broadcast; }
};

/// A whole tensor of `elements` floats in memory that has room for size() * slice_stride(elements, size()) of
/// them; member r's part is slice_of(elements, size(), r).
struct Extent {
  float* data = nullptr;
  std::int64_t elements = 0;
};

enum class Scalar { sum, max };

class Communicator {
 public:
  /// Elements [first, first + count) of this member's part of tensor `tensor`, once per contribution, in
  /// canonical order (members ascending, each member's arrays in their order). Valid during the call only.
  using Fold = std::function<void(int tensor, std::int64_t first, std::int64_t count,
                                  std::span<const float* const> sources)>;
  static constexpr std::int64_t largest_fold =
      1 << 16;  ///< no fold gets more elements at once: they stay in the cache

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Before: each member has its own part in place. After: every member has all of every tensor.
  virtual void all_gather(std::span<const Extent> tensors) = 0;
  /// Each member brings one leaf (a whole gradient per tensor) and folds its own part of all members' leaves
  /// (numerics rule 5). `fold` is called for all elements of the part, in pieces, each element exactly once.
  virtual void fold_leaves(std::span<const Extent> leaves, const Fold& fold) = 0;
  /// Each member brings arrays_of[rank()] arrays of `elements` floats (nodes of its tree) and folds its own
  /// part of all of them; `fold` gets tensor 0.
  virtual void exchange_nodes(std::span<const float* const> nodes, std::span<const int> arrays_of,
                              std::int64_t elements, const Fold& fold) = 0;
  /// Word by word, modulo 2^64 or the largest: exact, whatever the order (numerics rule 7).
  virtual void all_reduce(std::span<std::uint64_t> words, Scalar how) = 0;
  /// `bytes` of member `root` to everybody.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual void barrier() = 0;

  /// Members with equal `color` form a group, ordered by `key`.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  virtual const Wire& wire() const = 0;
  /// Ends all ranks of the job. Never returns to a working state; does nothing when there is nobody else.
  virtual void abort(std::string_view why) noexcept = 0;
};

/// Text of any length from `root` to everybody.
std::string broadcast_text(Communicator& group, std::string text, int root);

}  // namespace holdfast::comm
