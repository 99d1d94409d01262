// libFuzzer on the choices of algorithms.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_tuning({reinterpret_cast<const char*>(data), size});
  return 0;
}
