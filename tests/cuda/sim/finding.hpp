#pragma once
#include <stdexcept>
#include <string>

namespace holdfast::cuda::sim {

/// What the simulator found wrong with a program: a race, a missing barrier, a call that a GPU would refuse.
/// Not an Error: nothing that handles failures of devices may swallow it.
class Finding : public std::logic_error {
 public:
  explicit Finding(const std::string& what) : std::logic_error("simulated GPU: " + what) {}
};

}  // namespace holdfast::cuda::sim
