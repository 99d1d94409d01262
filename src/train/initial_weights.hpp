#pragma once
// What a run without a checkpoint begins with, from files ([model] weights): the weights of a Hugging Face
// folder, of a safetensors file, or of a checkpoint or another run of ours.
#include "src/comm/communicator.hpp"
#include "src/train/setup.hpp"
#include "src/train/state_views.hpp"

namespace holdfast::train {

/// Collective. Fills the pieces of `views.held` that belong to the model, as fp32; moments are left alone.
/// Every rank reads the ranges of its own pieces and nothing else, all at once, with at most 64 MiB of memory
/// of its own. Throws Error on every rank: usage when the files are not usable or not of this model (rank 0
/// looks, before anybody reads), runtime when they cannot be read or are damaged.
void read_initial_weights(const Setup& setup, const StateViews& views, comm::Communicator& world);

}  // namespace holdfast::train
