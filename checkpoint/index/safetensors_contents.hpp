#pragma once
// What one safetensors file or several hold: names, types and shapes, by their headers. No value is read.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/safetensors.hpp"
#include "checkpoint/index/safetensors_index.hpp"

namespace holdfast::checkpoint::safetensors {

class Contents {
 public:
  /// `path`: a file, an index (*.json with a "weight_map"), or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws Error (usage) when they are not usable or contradict each other.
  explicit Contents(const fs::path& path);

  const fs::path& path() const { return path_; }
  /// Names in order of the files and of their bytes.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return places_.contains(name); }
  const Tensor& tensor(const std::string& name) const;
  int files() const { return static_cast<int>(files_.size()); }
  std::int64_t tensor_bytes() const;
  /// Of names, types, shapes and places of all tensors: what can be told of the weights without reading them.
  std::uint64_t identity() const;

 protected:
  struct File {
    fs::path path;
    Header header;
  };
  const std::vector<File>& opened() const { return files_; }
  std::size_t file_of(const std::string& name) const { return places_.at(name).first; }

 private:
  void add(const fs::path& path);
  void add_index(const fs::path& path);

  fs::path path_;
  std::vector<File> files_;
  std::vector<std::string> names_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> places_;  ///< file, tensor in it
};

}  // namespace holdfast::checkpoint::safetensors
