#pragma once
// XXH3-128 as text: of manifests, of index.h5, and of a shard's table of block checksums.
#include <xxhash.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast::checkpoint {

/// 32 lower-case hex digits, high half first; of `bytes` followed by `more`.
inline std::string xxh3_128(std::string_view bytes, std::string_view more = {}) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
  XXH3_128bits_update(state.get(), more.data(), more.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace holdfast::checkpoint
