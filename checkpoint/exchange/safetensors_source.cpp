#include "checkpoint/exchange/safetensors_source.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "checkpoint/index/safetensors_model.hpp"
#include "src/base/as_size.hpp"
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

constexpr const char* embedding_name = "model.embed_tokens.weight";
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

Source::Source(const fs::path& path) : Contents(path) {
  for (const File& file : opened()) {
    try {
      readers_.push_back(std::make_unique<DirectReader>(file.path));
    } catch (const std::system_error& e) {
      throw system_error("cannot open " + file.path.string(), e.code().value());
    }
  }
}

std::int64_t Source::read(std::span<const Wanted> wanted) const {
  std::vector<Part> parts;
  for (const Wanted& range : wanted) {
    const std::size_t file = file_of(range.name);
    const Tensor& from = tensor(range.name);
    const auto element = element_called(from.dtype);
    expects(element.has_value(), "only types that have values as fp32 are read");
    const std::int64_t each = bytes_of(*element), count = std::ssize(range.to), most = run_bytes / each;
    expects(range.first >= 0 && range.first <= from.bytes / each - count, "a range lies inside its tensor");
    for (std::int64_t done = 0; done < count; done += most) {
      const std::int64_t n = std::min(most, count - done);
      parts.push_back({file, opened()[file].header.buffer_offset + from.first + (range.first + done) * each,
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
      const File& file = opened()[parts[run.first].file];
      const auto [first, size] = pages_of(run);
      std::int64_t got = 0;
      try {
        got = readers_[parts[run.first].file]->read(buffer->span().first(size), first);
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

void require_tied_head(const Source& source) {
  if (!source.has(head_name)) return;
  const Tensor &head = source.tensor(head_name), &embedding = source.tensor(embedding_name);
  bool same = head.dtype == embedding.dtype && head.shape == embedding.shape;
  const std::int64_t count = embedding.bytes / bytes_of_dtype(embedding.dtype), most = 1 << 20;
  std::vector<float> a, b;
  for (std::int64_t first = 0; same && first < count; first += most) {
    const auto n = as_size(std::min(most, count - first));
    a.resize(n), b.resize(n);
    const Wanted both[] = {{head_name, first, a}, {embedding_name, first, b}};
    source.read(both);
    same = std::memcmp(a.data(), b.data(), sizeof(float) * n) == 0;
  }
  if (!same)
    throw not_of_model(source,
                       std::string(head_name) + " differs from the embedding, and the model ties them");
}

}  // namespace holdfast::checkpoint::safetensors
