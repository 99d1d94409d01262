#pragma once
// The safetensors format: a length (u64, little-endian), a JSON header, and one buffer in which the tensors
// lie side by side (github.com/huggingface/safetensors, README "Format"). Only the header is dealt with here:
// tensors are byte ranges of the file.
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::checkpoint::safetensors {

namespace fs = std::filesystem;

inline constexpr std::int64_t length_bytes = 8;              ///< before the header
inline constexpr std::int64_t largest_header = 100'000'000;  ///< the format's own bound

struct Tensor {
  std::string name;
  std::string dtype;  ///< as the format spells it: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::int64_t first = 0, bytes = 0;  ///< in the buffer
  bool operator==(const Tensor&) const = default;
};

struct Header {
  std::vector<Tensor> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::int64_t buffer_offset = 0;  ///< of the buffer, in the file
};

/// Bytes of an element; 0 for a dtype that this reader does not know.
std::int64_t bytes_of_dtype(std::string_view dtype);

/// Reads the header's JSON text (without the length), for a buffer of `buffer_bytes`. Strict: throws Error
/// (usage) that names the first thing wrong. What it returns covers the buffer exactly, without holes or
/// overlaps, and each tensor has the bytes that dtype and shape ask for.
Header parse_header(std::string_view json, std::int64_t buffer_bytes);
/// Of a file. Throws Error (usage) as well when it is no such file; it reads the header only.
Header read_header(const fs::path& path);

/// Length and header of a file whose tensors follow each other in the order given (`first` is filled in from
/// their `bytes`), the header padded with spaces: up to a multiple of 8 bytes, or so that the buffer begins
/// at `buffer_offset` if that is not 0.
std::string header_text(std::span<Tensor> tensors, const std::map<std::string, std::string>& metadata,
                        std::int64_t buffer_offset = 0);

}  // namespace holdfast::checkpoint::safetensors
