#pragma once
// Tensors in one safetensors file or several, read by ranges. Internal to checkpoint/.
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint::safetensors {

class Source {
 public:
  /// `path`: a file, an index (*.json with a "weight_map"), or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws Error (usage) when they are not usable or contradict each other.
  explicit Source(const fs::path& path);

  /// Names in order of the files and of their bytes.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return places_.contains(name); }
  const Tensor& tensor(const std::string& name) const;
  /// Elements [first, first + to.size()) of a tensor of type F32, BF16 or F16, as fp32. Throws Error.
  void read(const std::string& name, std::int64_t first, std::span<float> to) const;

 private:
  struct File {
    fs::path path;
    Header header;
    files::Fd fd;
  };
  void add(const fs::path& path);
  void add_index(const fs::path& path);

  std::vector<File> files_;
  std::vector<std::string> names_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> places_;  ///< file, tensor in it
};

}  // namespace holdfast::checkpoint::safetensors
