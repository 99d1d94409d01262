#include "src/comm/copy_lines.hpp"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace holdfast::comm {

void copy_lines(std::byte* to, const std::byte* from, std::size_t bytes, bool past_caches) {
#ifdef __SSE2__
  constexpr std::size_t line = 64;
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  if (bytes > head + line) {
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    const auto load = [&](std::size_t i) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    };
    for (; bytes >= line; to += line, from += line, bytes -= line) {
      const __m128i words[] = {load(0), load(1), load(2), load(3)};
      auto* target = reinterpret_cast<__m128i*>(to);
      if (past_caches)
        for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, words[i]);
      else
        for (int i = 0; i < 4; ++i) _mm_store_si128(target + i, words[i]);
    }
    if (past_caches) _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace holdfast::comm
