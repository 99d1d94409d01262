#include "tests/support/safetensors.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "src/base/as_size.hpp"

namespace holdfast::testing {

namespace {

void need(bool condition, const std::string& path, const std::string& problem) {
  if (!condition) throw std::runtime_error(path + ": " + problem);
}

std::size_t elements_of(const std::vector<std::int64_t>& shape) {
  std::size_t n = 1;
  for (const auto length : shape) n *= as_size(length);
  return n;
}

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path) : path_(path.string()) {
  std::ifstream in(path, std::ios::binary);
  need(in.good(), path_, "cannot be opened");
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  need(all.size() >= 8, path_, "is too short for a header");
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(all[i]);
  need(length <= all.size() - 8, path_, "has a header that is longer than the file");
  const auto header = nlohmann::json::parse(all.substr(8, length));
  data_ = all.substr(8 + length);

  std::map<std::size_t, std::size_t> ranges;  // begin and end of each tensor
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = value.get<std::map<std::string, std::string>>();
      continue;
    }
    Entry e;
    e.type = value.at("dtype").get<std::string>();
    e.shape = value.at("shape").get<std::vector<std::int64_t>>();
    const auto offsets = value.at("data_offsets").get<std::vector<std::size_t>>();
    need(value.size() == 3 && offsets.size() == 2, path_, name + " has an odd entry");
    e.begin = offsets[0];
    e.end = offsets[1];
    need(e.type == "F32" || e.type == "I32", path_, name + " is of type " + e.type);
    for (const auto n : e.shape) need(n > 0, path_, name + " has an odd shape");
    need(e.begin < e.end && e.end - e.begin == 4 * elements_of(e.shape), path_,
         name + " has a size that is not its shape's");
    ranges[e.begin] = e.end;
    entries_[name] = std::move(e);
  }
  std::size_t at = 0;
  for (const auto& [begin, end] : ranges) {
    need(begin == at, path_, "has tensors with gaps or overlaps");
    at = end;
  }
  need(at == data_.size() && ranges.size() == entries_.size(), path_, "has bytes that belong to no tensor");
}

const Safetensors::Entry& Safetensors::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  need(found != entries_.end(), path_, "has no tensor " + name);
  return found->second;
}

template <class T>
std::vector<T> Safetensors::elements(const std::string& name, const char* type,
                                     const std::vector<std::int64_t>& shape) const {
  const Entry& e = entry(name);
  need(e.type == type && e.shape == shape, path_, name + " has another type or shape than expected");
  std::vector<T> out(elements_of(shape));
  std::memcpy(out.data(), data_.data() + e.begin, e.end - e.begin);
  return out;
}

std::vector<float> Safetensors::floats(const std::string& name,
                                       const std::vector<std::int64_t>& shape) const {
  return elements<float>(name, "F32", shape);
}
std::vector<std::int32_t> Safetensors::integers(const std::string& name,
                                                const std::vector<std::int64_t>& shape) const {
  return elements<std::int32_t>(name, "I32", shape);
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : entries_) out.push_back(name);
  return out;
}

}  // namespace holdfast::testing
