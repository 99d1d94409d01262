// libFuzzer on run directories: events, metrics, result and plan.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_run({reinterpret_cast<const char*>(data), size});
  return 0;
}
