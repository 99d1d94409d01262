#pragma once
// The state digest of a run (contract 2): every rank digests what it owns, the rest is an exact sum.
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/state/state_window.hpp"

namespace holdfast::train {

struct StateDigest {
  std::vector<std::uint64_t> tensors;                                  ///< one per logical tensor
  std::uint64_t state = 0;                                             ///< all of them in one number
  std::string text() const { return checkpoint::digest_text(state); }  ///< 16 hex digits
};

/// Collective. `owned`, in host memory: over all ranks, every element once.
StateDigest digest_state(const checkpoint::State& owned, comm::Communicator& world);
/// The same of a state that lies where the window looks.
StateDigest digest_state(const checkpoint::State& owned, StateWindow& window, comm::Communicator& world);

}  // namespace holdfast::train
