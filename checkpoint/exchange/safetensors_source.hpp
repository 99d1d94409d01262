#pragma once
// Tensors in one safetensors file or several, read by ranges at the speed of the disk.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/index/safetensors.hpp"
#include "checkpoint/index/safetensors_index.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/io/elements.hpp"

namespace holdfast::checkpoint::safetensors {

/// Elements [first, first + to.size()) of a tensor, and where they go.
struct Wanted {
  std::string name;
  std::int64_t first = 0;
  std::span<float> to;
};

class Source {
 public:
  /// Bytes of one read, and how many reads are in flight: all the memory that reading takes.
  static constexpr std::int64_t run_bytes = 8 << 20;
  static constexpr int workers = 4;

  /// `path`: a file, an index (*.json with a "weight_map"), or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws Error (usage) when they are not usable or contradict each other.
  explicit Source(const fs::path& path);

  const fs::path& path() const { return path_; }
  /// Names in order of the files and of their bytes.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return places_.contains(name); }
  const Tensor& tensor(const std::string& name) const;
  int files() const { return static_cast<int>(files_.size()); }
  std::int64_t tensor_bytes() const;
  /// Of names, types, shapes and places of all tensors: what can be told of the weights without reading them.
  std::uint64_t identity() const;

  /// As fp32. The tensors are of types that Element has. Neighbours are read together, past the page cache
  /// where the file system allows it. Returns the bytes read. Throws Error.
  std::int64_t read(std::span<const Wanted> wanted) const;

 private:
  struct File {
    fs::path path;
    Header header;
    std::unique_ptr<DirectReader> reader;
  };
  void add(const fs::path& path);
  void add_index(const fs::path& path);

  fs::path path_;
  std::vector<File> files_;
  std::vector<std::string> names_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> places_;  ///< file, tensor in it
};

}  // namespace holdfast::checkpoint::safetensors
