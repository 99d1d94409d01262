#pragma once
// Reads a .safetensors file (Hugging Face): the length of the header as a little-endian u64, the header in
// JSON, and the tensors' bytes. Only what the goldens need: F32 and I32. Anything odd throws
// std::runtime_error.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace holdfast::testing {

class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path);

  /// Elements of a tensor, row-major, which must have this shape.
  std::vector<float> floats(const std::string& name, const std::vector<std::int64_t>& shape) const;
  std::vector<std::int32_t> integers(const std::string& name, const std::vector<std::int64_t>& shape) const;
  std::vector<std::int64_t> shape(const std::string& name) const { return entry(name).shape; }
  std::vector<std::string> names() const;
  /// The file's own remarks.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    std::string type;
    std::vector<std::int64_t> shape;
    std::size_t begin = 0, end = 0;
  };
  const Entry& entry(const std::string& name) const;
  template <class T>
  std::vector<T> elements(const std::string& name, const char* type,
                          const std::vector<std::int64_t>& shape) const;

  std::string path_, data_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace holdfast::testing
