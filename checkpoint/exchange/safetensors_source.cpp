#include "checkpoint/exchange/safetensors_source.hpp"

#include <algorithm>
#include <set>
#include <system_error>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/parallel.hpp"

namespace holdfast::checkpoint::safetensors {
namespace {

/// Bytes of one file that one range of elements asks for.
struct Part {
  std::size_t file;
  std::int64_t offset, bytes;
  Element element;
  std::span<float> to;
};

/// Parts [first, last) that are read together.
struct Run {
  std::size_t first, last;
};

constexpr std::int64_t gap_that_is_read_too = 64 << 10;

std::int64_t end_of(const Part& part) { return part.offset + part.bytes; }

std::vector<Run> runs_of(const std::vector<Part>& parts) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!runs.empty()) {
      const Part &begin = parts[runs.back().first], &before = parts[i - 1];
      if (begin.file == parts[i].file && parts[i].offset - end_of(before) <= gap_that_is_read_too &&
          end_of(parts[i]) - begin.offset <= Source::run_bytes) {
        runs.back().last = i + 1;
        continue;
      }
    }
    runs.push_back({i, i + 1});
  }
  return runs;
}

}  // namespace

Source::Source(const fs::path& path) : path_(path) {
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
  File file{path, read_header(path), {}};
  try {
    file.reader = std::make_unique<DirectReader>(path);
  } catch (const std::system_error& e) {
    throw system_error("cannot open " + path.string(), e.code().value());
  }
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

void Source::add_index(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) throw Error(Exit::usage, "cannot read " + path.string(), error.message());
  if (static_cast<std::int64_t>(bytes) > largest_index)
    throw Error(Exit::usage, path.string() + " is not a usable index of safetensors files",
                "it has " + std::to_string(bytes) + " bytes");
  const WeightMap map = parse_index(files::read_text(path), path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  for (const std::string& name : names) add(path.parent_path() / name);
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, path.string() + " is not a usable index of safetensors files", why);
  };
  for (const auto& [tensor, file] : map) {
    if (!has(tensor)) refuse(tensor + " is in none of its files");
    if (files_[places_.at(tensor).first].path.filename() != file) refuse(tensor + " is not in " + file);
  }
}

const Tensor& Source::tensor(const std::string& name) const {
  const auto [file, index] = places_.at(name);
  return files_[file].header.tensors[index];
}

std::int64_t Source::tensor_bytes() const {
  std::int64_t sum = 0;
  for (const File& file : files_)
    for (const Tensor& tensor : file.header.tensors) sum += tensor.bytes;
  return sum;
}

std::uint64_t Source::identity() const {
  std::uint64_t sum = 0;
  for (const auto& [name, place] : places_) {
    const Tensor& tensor = files_[place.first].header.tensors[place.second];
    std::string text = tensor.dtype;
    for (const std::int64_t extent : tensor.shape) text += " " + std::to_string(extent);
    text += " at " + std::to_string(tensor.first) + " of " + files_[place.first].path.filename().string();
    sum = combine_digests(sum, hash_name(name.data(), name.size()), hash_name(text.data(), text.size()));
  }
  return sum;
}

std::int64_t Source::read(std::span<const Wanted> wanted) const {
  std::vector<Part> parts;
  for (const Wanted& range : wanted) {
    const std::size_t file = places_.at(range.name).first;
    const Tensor& from = tensor(range.name);
    const auto element = element_called(from.dtype);
    expects(element.has_value(), "only types that have values as fp32 are read");
    const std::int64_t each = bytes_of(*element), count = std::ssize(range.to), most = run_bytes / each;
    expects(range.first >= 0 && range.first <= from.bytes / each - count, "a range lies inside its tensor");
    for (std::int64_t done = 0; done < count; done += most) {
      const std::int64_t n = std::min(most, count - done);
      parts.push_back({file, files_[file].header.buffer_offset + from.first + (range.first + done) * each,
                       n * each, *element, range.to.subspan(done, n)});
    }
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  const std::vector<Run> runs = runs_of(parts);
  const auto pages_of = [&](const Run& run) {
    const std::int64_t first = parts[run.first].offset / direct_alignment * direct_alignment;
    return std::pair(first, whole_pages(end_of(parts[run.last - 1]) - first));
  };
  std::int64_t room = 0, bytes = 0;
  for (const Run& run : runs) {
    room = std::max(room, pages_of(run).second);
    bytes += pages_of(run).second;
  }
  parallel_for(runs.size(), workers, [&](int) {
    return [&, buffer = std::make_shared<AlignedBuffer>(room)](std::size_t index) {
      const Run& run = runs[index];
      const File& file = files_[parts[run.first].file];
      const auto [first, size] = pages_of(run);
      std::int64_t got = 0;
      try {
        got = file.reader->read(buffer->span().first(size), first);
      } catch (const std::system_error& e) {
        throw system_error("cannot read " + file.path.string(), e.code().value());
      }
      if (first + got < end_of(parts[run.last - 1]))
        throw Error(Exit::runtime, "cannot read " + file.path.string(),
                    "it became shorter while it was read");
      for (std::size_t p = run.first; p < run.last; ++p)
        to_fp32(parts[p].element, buffer->span().data() + (parts[p].offset - first), parts[p].to);
    };
  });
  return bytes;
}

}  // namespace holdfast::checkpoint::safetensors
