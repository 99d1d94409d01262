#include "checkpoint/safetensors_source.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/dtype.hpp"
#include "src/base/error.hpp"

namespace holdfast::checkpoint::safetensors {
namespace {

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

/// IEEE half precision: 5 bits of exponent with bias 15, 10 of mantissa. Every value is an fp32 too.
float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

void read_exactly(int fd, void* to, std::int64_t bytes, std::int64_t offset, const fs::path& path) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, at, static_cast<std::size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot read " + path.string(), errno);
    if (n == 0)
      throw Error(Exit::runtime, "cannot read " + path.string(), "it became shorter while it was read");
    at += n, bytes -= n, offset += n;
  }
}

/// Widens what lies at the end of `to` as 16-bit elements: each is read before its place is written.
template <class Widen>
void widen(std::span<float> to, Widen widen_one) {
  const auto* from = reinterpret_cast<const char*>(to.data() + to.size()) - 2 * to.size();
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = widen_one(bits);
  }
}

}  // namespace

Source::Source(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (path.extension() == ".json")
      add_index(path);
    else
      add(path);
  } else if (fs::exists(path / index_name)) {
    add_index(path / index_name);
  } else if (fs::exists(path / single_name)) {
    add(path / single_name);
  } else {
    throw Error(Exit::usage, path.string() + " holds no safetensors files",
                std::string("there is neither ") + single_name + " nor " + index_name + " in it");
  }
}

void Source::add(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw Error(Exit::usage, "there is no file " + path.string());
  File file{path, read_header(path), files::open(path, O_RDONLY)};
  (void)::posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  for (std::size_t i = 0; i < file.header.tensors.size(); ++i) {
    const std::string& name = file.header.tensors[i].name;
    const auto [there, is_new] = places_.emplace(name, std::pair(files_.size(), i));
    if (!is_new)
      throw Error(Exit::usage, "tensor " + name + " is there twice",
                  "in " + files_[there->second.first].path.string() + " and in " + path.string());
    names_.push_back(name);
  }
  files_.push_back(std::move(file));
}

/// {"metadata": ..., "weight_map": {tensor: file}}: the files lie beside it.
void Source::add_index(const fs::path& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, path.string() + " is not a usable index of safetensors files", why);
  };
  const auto json = nlohmann::json::parse(files::read_text(path), nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    refuse("it has no weight_map");
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) refuse("the file of " + tensor + " is not a text");
    const fs::path name = file.get<std::string>();
    if (name.empty() || name != name.filename() || name == "." || name == "..")
      refuse("\"" + name.string() + "\" is not a file beside it");
    names.insert(name.string());
  }
  for (const std::string& name : names) add(path.parent_path() / name);
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!has(tensor)) refuse(tensor + " is in none of its files");
    if (files_[places_.at(tensor).first].path.filename() != file.get<std::string>())
      refuse(tensor + " is not in " + file.get<std::string>());
  }
}

const Tensor& Source::tensor(const std::string& name) const {
  const auto [file, index] = places_.at(name);
  return files_[file].header.tensors[index];
}

void Source::read(const std::string& name, std::int64_t first, std::span<float> to) const {
  const File& file = files_[places_.at(name).first];
  const Tensor& from = tensor(name);
  const std::int64_t each = bytes_of_dtype(from.dtype), bytes = each * static_cast<std::int64_t>(to.size());
  expects(first >= 0 && first * each <= from.bytes - bytes, "a range lies inside its tensor");
  char* const end = reinterpret_cast<char*>(to.data() + to.size());
  read_exactly(file.fd.get(), end - bytes, bytes, file.header.buffer_offset + from.first + first * each,
               file.path);
  if (from.dtype == "BF16") widen(to, [](std::uint16_t bits) { return to_float(Bf16{bits}); });
  if (from.dtype == "F16") widen(to, half_to_float);
}

}  // namespace holdfast::checkpoint::safetensors
