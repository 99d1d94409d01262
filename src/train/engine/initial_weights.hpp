#pragma once
// What a run without a checkpoint begins with, from files: weights ([model] weights) and adapters ([lora]
// weights). With adapters the weights are what they are trained on, and every start reads them.
#include "src/comm/communicator.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/state/state_views.hpp"
#include "src/train/state/state_window.hpp"
#include "src/weights/model_files.hpp"

namespace holdfast::train {

/// Collective: rank 0 looks, before anybody reads, and says what they are. Throws Error on every rank: usage
/// when the files are not usable or not of this model.
weights::ModelFiles open_weights(const Setup& setup, comm::Communicator& world);

/// Collective. Fills the pieces of `views.held` that belong to the model; moments are left alone. Every rank
/// reads the ranges of its own pieces and nothing else, all at once, for a GPU through the window. Throws
/// Error on every rank.
void read_initial_weights(const Setup& setup, const StateViews& views, StateWindow& window,
                          comm::Communicator& world);

/// The same with adapters. `base_digest`: of the weights beside them, which must be those that the adapters
/// were trained on, where these know.
void read_initial_adapters(const Setup& setup, const std::string& base_digest, const StateViews& views,
                           StateWindow& window, comm::Communicator& world);

}  // namespace holdfast::train
