#pragma once
// Which algorithms compute the products of this run. Measured once, by rank 0 in the run's first attempt, and
// kept in the run directory: a search that is repeated at a restart would change bits (numerics rule 14).
#include <filesystem>
#include <functional>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace holdfast::train {

/// Collective. `micro_batch`: enqueues all that a micro-batch consists of; it is only noted. Reads and
/// completes `file`; where there is none yet, begins with the choices of the run that made the checkpoint
/// `origin` ("": none).
void agree_on_algorithms(device::Device& device, comm::Communicator& world, const std::filesystem::path& file,
                         const std::filesystem::path& origin, const std::function<void()>& micro_batch);

}  // namespace holdfast::train
