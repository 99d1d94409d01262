#pragma once
// Tensors in one safetensors file or several, read by ranges at the speed of the disk.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/safetensors_contents.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/io/elements.hpp"

namespace holdfast::checkpoint::safetensors {

/// Elements [first, first + to.size()) of a tensor, and where they go.
struct Wanted {
  std::string name;
  std::int64_t first = 0;
  std::span<float> to;
};

/// With their values. Throws Error as Contents does.
class Source : public Contents {
 public:
  /// Bytes of one read, and how many reads are in flight: all the memory that reading takes.
  static constexpr std::int64_t run_bytes = 8 << 20;
  static constexpr int workers = 4;

  explicit Source(const fs::path& path);

  /// As fp32. The tensors are of types that Element has. Neighbours are read together, past the page cache
  /// where the file system allows it. Returns the bytes read. Throws Error.
  std::int64_t read(std::span<const Wanted> wanted) const;

 private:
  std::vector<std::unique_ptr<DirectReader>> readers_;  ///< of each file
};

/// A tied model's head repeats the embedding in some files: throws Error (usage) where lm_head.weight is
/// there and differs from it in a bit.
void require_tied_head(const Source& source);

}  // namespace holdfast::checkpoint::safetensors
