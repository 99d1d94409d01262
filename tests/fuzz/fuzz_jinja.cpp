// libFuzzer on chat templates: bytes before the first NUL are the template, those behind it a conversation.
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_jinja({reinterpret_cast<const char*>(data), size});
  return 0;
}
