#pragma once
// What a run remembers of its losses, as the text that checkpoints keep (RunPoint::detector).
#include <string>

#include "src/optim/best_loss.hpp"
#include "src/train/loop/detector_text.hpp"

namespace holdfast::train {

/// A part of the run's state: the same on every rank.
struct LossMemory {
  optim::GuardState guard;  ///< of those of the steps
  optim::BestLoss best;     ///< of the held-out ones; only where [eval] asks for it
  bool operator==(const LossMemory&) const = default;
};

/// As to_text(guard), and behind a '+' the best loss, if there is one.
std::string to_text(const LossMemory& memory);
/// Throws Error (runtime) for a text that to_text() does not write.
LossMemory loss_memory_from_text(const std::string& text);

}  // namespace holdfast::train
