#pragma once
// Everybody's address to everybody, by the small operations of a communicator.
#include <cstddef>
#include <span>
#include <vector>

#include "src/comm/communicator.hpp"

namespace holdfast::comm {

/// Collective. By rank; empty where a rank gave none.
std::vector<std::vector<std::byte>> share_addresses(Communicator& world, std::span<const std::byte> mine);

}  // namespace holdfast::comm
