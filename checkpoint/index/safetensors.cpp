// read_header() reads the length and the header of a file, never a tensor. It refuses a Git LFS pointer, and
// a header that is longer than the format allows or than the file, before it takes memory for it; then
// parse_header() reads the text. read_tensor() checks each entry by itself: its fields, its type, and that
// its bytes are those that its shape asks for. The entries are then sorted by offset, and require_cover()
// checks that they follow each other without gaps and overlaps and end with the file. Sizes come from a
// stranger's file, so every product and sum is guarded against overflow.
//
// header_text() is the reverse, and gives the tensors their offsets. refuse() does not know the file:
// read_header() adds its path to the Error.
#include "checkpoint/index/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lfs_pointer.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::checkpoint::safetensors {
namespace {

using Json = nlohmann::json;

constexpr const char* metadata_key = "__metadata__";

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Exit::usage, "this is not a usable safetensors file", why);
}

/// The header's own nesting is 3.
constexpr int deepest_header = 4;

Json parse_json(std::string_view text) {
  try {
    return parse_strict_json(text, deepest_header);
  } catch (const NotStrictJson& wrong) {
    refuse(std::string("its header ") + wrong.what());
  }
}

std::int64_t natural(const Json& value, const std::string& what) {
  if (!value.is_number_unsigned()) refuse(what + " is not a non-negative integer");
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(INT64_MAX)) refuse(what + " is too large");
  return static_cast<std::int64_t>(number);
}

/// Exactly these fields.
void require_fields(const Json& object, const std::string& name, std::initializer_list<const char*> fields) {
  if (!object.is_object()) refuse(name + " is not described by an object");
  for (const char* field : fields)
    if (!object.contains(field)) refuse(name + " has no " + field);
  if (object.size() != fields.size()) refuse(name + " has a field that the format does not know");
}

Tensor read_tensor(const std::string& name, const Json& entry) {
  const std::string who = "tensor " + quoted(name);
  require_fields(entry, who, {"dtype", "shape", "data_offsets"});
  Tensor tensor;
  tensor.name = name;
  if (!entry["dtype"].is_string()) refuse(who + " has a dtype that is not a text");
  tensor.dtype = entry["dtype"].get<std::string>();
  std::int64_t bytes = bytes_of_dtype(tensor.dtype);
  if (bytes == 0) refuse(who + " has the unknown dtype " + quoted(tensor.dtype));
  if (!entry["shape"].is_array()) refuse(who + " has a shape that is not a list");
  for (const Json& extent : entry["shape"]) {
    tensor.shape.push_back(natural(extent, "the shape of " + who));
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) refuse(who + " is too large");
  }
  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) refuse(who + " has data_offsets that are not two numbers");
  tensor.first = natural(offsets[0], "data_offsets of " + who);
  const std::int64_t end = natural(offsets[1], "data_offsets of " + who);
  if (end < tensor.first || end - tensor.first != bytes)
    refuse(who + " needs " + std::to_string(bytes) + " bytes, its data_offsets are " +
           std::to_string(tensor.first) + " and " + std::to_string(end));
  tensor.bytes = bytes;
  return tensor;
}

void require_cover(const std::vector<Tensor>& tensors, std::int64_t buffer_bytes) {
  std::int64_t next = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.first != next)
      refuse("tensor " + quoted(tensor.name) + " begins at byte " + std::to_string(tensor.first) +
             " of the buffer, not at " + std::to_string(next) + ": bytes are left out or used twice");
    next += tensor.bytes;  // at most the largest data_offset, so no overflow
  }
  if (next != buffer_bytes)
    refuse("its tensors take " + std::to_string(next) + " bytes, and the buffer has " +
           std::to_string(buffer_bytes));
}

}  // namespace

std::int64_t bytes_of_dtype(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, int>, 16> known = {{{"BOOL", 1},
                                                                              {"U8", 1},
                                                                              {"I8", 1},
                                                                              {"F8_E4M3", 1},
                                                                              {"F8_E5M2", 1},
                                                                              {"F8_E8M0", 1},
                                                                              {"U16", 2},
                                                                              {"I16", 2},
                                                                              {"F16", 2},
                                                                              {"BF16", 2},
                                                                              {"U32", 4},
                                                                              {"I32", 4},
                                                                              {"F32", 4},
                                                                              {"U64", 8},
                                                                              {"I64", 8},
                                                                              {"F64", 8}}};
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.first == dtype; });
  return found == known.end() ? 0 : found->second;
}

Header parse_header(std::string_view text, std::int64_t buffer_bytes) {
  const Json json = parse_json(text);
  Header header;
  header.buffer_offset = length_bytes + static_cast<std::int64_t>(text.size());
  for (const auto& [name, entry] : json.items()) {
    if (name != metadata_key) {
      header.tensors.push_back(read_tensor(name, entry));
      continue;
    }
    if (!entry.is_object()) refuse("__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse("__metadata__ holds " + quoted(key) + ", which is not a text");
      header.metadata[key] = value.get<std::string>();
    }
  }
  // Empty tensors come before what begins at the same byte.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.first, a.bytes) < std::pair(b.first, b.bytes);
  });
  require_cover(header.tensors, buffer_bytes);
  return header;
}

Header read_header(const fs::path& path) {
  const files::Fd fd = files::open(path, O_RDONLY);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot look at " + path.string(), errno);
  try {
    if (!S_ISREG(info.st_mode)) refuse("it is not a file");
    const auto read = [&](char* to, std::int64_t bytes, std::int64_t at) {
      for (std::int64_t done = 0; done < bytes;) {
        const ssize_t n = ::pread(fd.get(), to + done, as_size(bytes - done), at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw system_error("cannot read " + path.string(), errno);
        if (n == 0) refuse("it became shorter while it was read");
        done += n;
      }
    };
    std::string begin(as_size(std::min<std::int64_t>(info.st_size, 64)), '\0');
    read(begin.data(), std::ssize(begin), 0);
    refuse_lfs_pointer(path, begin);
    if (info.st_size < length_bytes) refuse("it is too short to have a header");
    unsigned char digits[length_bytes];
    read(reinterpret_cast<char*>(digits), length_bytes, 0);
    std::uint64_t length = 0;
    for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | digits[i];
    if (length > static_cast<std::uint64_t>(largest_header))
      refuse("its header would have " + std::to_string(length) + " bytes, and " +
             std::to_string(largest_header) + " is the most that the format allows");
    const auto bytes = static_cast<std::int64_t>(length);
    if (bytes > info.st_size - length_bytes) refuse("its header is cut off");
    std::string text(bytes, '\0');
    read(text.data(), bytes, length_bytes);
    return parse_header(text, info.st_size - length_bytes - bytes);
  } catch (const Error& e) {
    if (e.exit() != Exit::usage) throw;
    throw Error(Exit::usage, path.string() + " is not a usable safetensors file", e.why(), e.hint());
  }
}

std::string header_text(std::span<Tensor> tensors, const std::map<std::string, std::string>& metadata,
                        std::int64_t buffer_offset) {
  std::string text;
  const auto add = [&](const std::string& name, const Json& entry) {
    text += (text.empty() ? "{" : ",") + Json(name).dump() + ":" + entry.dump();
  };
  if (!metadata.empty()) add(metadata_key, metadata);
  std::int64_t next = 0;
  for (Tensor& tensor : tensors) {
    if (tensor.name == metadata_key)
      throw Error(Exit::usage, "a tensor cannot be named __metadata__ in a safetensors file");
    tensor.first = next;
    next += tensor.bytes;
    add(tensor.name,
        {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.first, next}}});
  }
  text += text.empty() ? "{}" : "}";
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (buffer_offset == 0) buffer_offset = (length_bytes + bytes + 7) / 8 * 8;
  expects(buffer_offset >= length_bytes + bytes, "the header fits before its buffer");
  text.append(as_size(buffer_offset - length_bytes - bytes), ' ');
  if (static_cast<std::int64_t>(text.size()) > largest_header)
    throw Error(Exit::usage, "there are too many tensors for one safetensors file",
                "their header would have " + std::to_string(text.size()) + " bytes");
  std::string length(length_bytes, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> 8 * i & 0xff);
  return length + text;
}

}  // namespace holdfast::checkpoint::safetensors
