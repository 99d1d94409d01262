// libFuzzer on the cards of token files.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_card({reinterpret_cast<const char*>(data), size});
  return 0;
}
