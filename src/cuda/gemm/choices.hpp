#pragma once
// Which algorithm of the library computes which product: found once per run, by timing, and kept beside the
// run, because another choice adds in another order. As text it is JSON:
//   {"format": 1, "device": {"name", "compute_capability", "multiprocessors"}, "library": "cuBLASLt 13.1.0",
//    "deterministic": true, "entries": {KEY: {"algorithm", "tile", "stages", "split_k", "reduction",
//    "swizzle", "custom", "inner_shape", "cluster", "workspace", "state", "microseconds"}}}
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace holdfast::cuda {

/// An algorithm with its configuration. The numbers are the library's, for people; `state` is the whole of
/// it.
struct Algorithm {
  int algorithm = 0, tile = 0, stages = 0, split_k = 1, reduction = 0, swizzle = 0, custom = 0,
      inner_shape = 0, cluster = 0;
  std::int64_t workspace = 0;  ///< bytes
  /// cublasLtMatmulAlgo_t, which the same version of the library takes back as it is; newer algorithms have
  /// settings that no attribute shows.
  std::array<std::uint64_t, 8> state{};
  double microseconds = 0;  ///< measured; 0: it was the only one, or could not be measured
  bool operator==(const Algorithm&) const = default;
};

struct Choices {
  std::string device;              ///< "NVIDIA H200"
  std::string compute_capability;  ///< "9.0"
  int multiprocessors = 0;         ///< the library cuts work by their number
  std::string library;             ///< with its version
  bool deterministic = true;
  std::map<std::string, Algorithm> entries;  ///< by key_of() of the product
  bool operator==(const Choices&) const = default;
};

std::string print_choices(const Choices& choices);

/// Throws Error (usage) that says what is wrong with the text.
Choices parse_choices(std::string_view text);

/// Throws Error (usage) that names the difference unless `made` was made for a device, library and mode such
/// as `here`. The entries do not count.
void require_same_place(const Choices& made, const Choices& here);

/// 16 hex digits of all that bits depend on: not the times, not the order of the text.
std::string hash_choices(const Choices& choices);
/// Of the text; "" has the hash "".
std::string hash_choices(std::string_view text);

}  // namespace holdfast::cuda
