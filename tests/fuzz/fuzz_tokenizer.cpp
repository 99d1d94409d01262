// libFuzzer on tokenizer.json: bytes before the first NUL are the file, or what changes the smallest one;
// those behind it a text.
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_tokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
