// libFuzzer on adapter_config.json of a folder of PEFT.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_adapter_config({reinterpret_cast<const char*>(data), size});
  return 0;
}
