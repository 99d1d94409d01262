#pragma once
// What the detector of spikes remembers, as the text that checkpoints keep.
#include <string>

#include "src/optim/guard.hpp"

namespace holdfast::train {

/// Hexadecimal, field by field; "" for a detector that has seen nothing.
std::string to_text(const optim::GuardState& state);
/// Throws Error (runtime) for a text that to_text() does not write.
optim::GuardState guard_from_text(const std::string& text);

}  // namespace holdfast::train
