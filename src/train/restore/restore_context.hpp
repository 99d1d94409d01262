#pragma once
// What a restore of this run may use beside the shared level.
#include "src/comm/communicator.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/engine/engine.hpp"
#include "src/train/restore/restore.hpp"

namespace holdfast::train {

/// The local level of `engine`, and exchanges over the network that the cluster file or the settings name.
/// References outlive the context.
RestoreContext restore_context(const Setup& setup, Engine& engine, comm::Communicator& world);

}  // namespace holdfast::train
