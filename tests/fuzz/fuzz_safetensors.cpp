// libFuzzer on safetensors files. Its mutator repairs the length of the header.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tests/fuzz/targets.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 16 == 0 || size < 8) return size;
  // The header ends at the last brace: what follows, spaces aside, is the buffer.
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = text.rfind('}');
  if (end == std::string_view::npos || end < 8) return size;
  const std::uint64_t length = end + 1 - 8;
  std::memcpy(data, &length, sizeof length);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_safetensors({reinterpret_cast<const char*>(data), size});
  return 0;
}
