#pragma once
// Runs a kernel's threads as fibers on the calling thread. Blocks come in random order, one at a time; within
// a block a random one of the fibers that can go on runs until it meets others or ends. Shared arrays are
// poisoned (0xFF: a NaN as a float) at the start of every block and have guarded ends.
#include <cstdint>

#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda::sim {

/// xorshift64*: small, and the same everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  /// 0 <= below(n) < n
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(next()) * n >> 64);
  }

 private:
  std::uint64_t state_;
};

/// Throws Finding when a GPU would refuse the grid or block.
void check_launch(const simt::Launch& launch);

/// The whole grid. Throws Finding: threads that wait for others that do not come, or meet at different
/// places; a write beyond a shared array; more than 48 KiB of shared memory.
void run_grid(const simt::Launch& launch, Dice& dice);

}  // namespace holdfast::cuda::sim
