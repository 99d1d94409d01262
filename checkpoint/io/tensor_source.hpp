#pragma once
// Tensors that are read by ranges: those of a checkpoint, or others that are computed as they are asked for.
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

/// For one pass over some of its tensors, in any order and cut in any way.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// What PieceView::tensor counts.
  virtual std::span<const LogicalTensor> tensors() const = 0;
  /// Memory that one read() at a time needs: aligned, whole pages.
  virtual std::int64_t room_bytes() const = 0;
  /// Fills `piece`; by any number of threads at once. Throws Error, and Damaged.
  virtual void read(const PieceView& piece, std::span<std::byte> room) = 0;
  /// After every element of these tensors was read exactly once: that they are what they should be. Throws
  /// Error, and Damaged.
  virtual void check(std::span<const int> tensors) const = 0;
};

}  // namespace holdfast::checkpoint
