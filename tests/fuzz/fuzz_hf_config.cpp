// libFuzzer on config.json and model.safetensors.index.json of a Hugging Face folder.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_hf_config({reinterpret_cast<const char*>(data), size});
  return 0;
}
