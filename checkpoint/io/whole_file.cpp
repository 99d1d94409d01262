#include "checkpoint/io/whole_file.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "checkpoint/io/aside_file.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/parallel.hpp"

namespace holdfast::checkpoint {
namespace {

/// Of a file, from `first` on.
struct Window {
  std::size_t file = 0;
  std::int64_t first = 0, bytes = 0;
};

/// Makes windows of the new files. One per worker.
class Filler {
 public:
  explicit Filler(TensorSource& source) : source_(source), room_(source.room_bytes()) {}

  void fill(const WholeFile& file, std::int64_t first, std::span<std::byte> window) {
    const auto end = first + std::ssize(window);
    std::int64_t next = first;  // all before it is filled
    if (const auto head = std::ssize(file.head); first < head) {
      next = std::min(end, static_cast<std::int64_t>(head));
      std::memcpy(window.data(), file.head.data() + first, next - first);
    }
    const auto zero_up_to = [&](std::int64_t to) {
      std::memset(window.data() + (next - first), 0, to - next);
    };
    for (const PlacedTensor& placed : file.tensors) {
      const std::int64_t each = bytes_of(placed.type), elements = tensor_of(placed).elements();
      const std::int64_t from = std::max(placed.offset, first),
                         to = std::min(placed.offset + elements * each, end);
      if (from >= to) continue;
      zero_up_to(from);
      next = to;
      put(placed, (from - placed.offset) / each, (to - from) / each, window.data() + (from - first));
    }
    zero_up_to(end);
  }

 private:
  const LogicalTensor& tensor_of(const PlacedTensor& placed) const {
    return source_.tensors()[placed.tensor];
  }

  void put(const PlacedTensor& placed, std::int64_t first, std::int64_t count, std::byte* to) {
    const bool rounds = placed.type != element_of(tensor_of(placed));
    if (rounds) scratch_.resize(std::max(scratch_.size(), as_size(count)));
    source_.read({placed.tensor, first, count, rounds ? static_cast<void*>(scratch_.data()) : to},
                 room_.span());
    if (rounds) from_fp32(placed.type, {scratch_.data(), as_size(count)}, to);
  }

  TensorSource& source_;
  AlignedBuffer room_;
  std::vector<float> scratch_;
};

void check_plan(std::span<const LogicalTensor> tensors, const WholeFile& file) {
  auto next = static_cast<std::int64_t>(file.head.size());
  for (const PlacedTensor& placed : file.tensors) {
    const LogicalTensor& tensor = tensors[placed.tensor];
    expects(placed.offset >= next && placed.offset % bytes_of(placed.type) == 0,
            "tensors lie behind the head, in order, aligned and apart");
    expects(placed.type == element_of(tensor) || tensor.type == DType::fp32,
            "a tensor is copied as it is, or rounded from fp32");
    next = placed.offset + tensor.elements() * bytes_of(placed.type);
  }
  expects(next <= file.bytes, "the file holds its tensors");
}

/// Whole pages, which can go past the page cache; then, one by one, the ends of the files, which cannot. A
/// file goes on through the cache once it was given such an end, and that may be ten times slower.
std::vector<Window> windows_of(std::span<const NamedFile> files, std::int64_t most, bool ends) {
  std::vector<Window> windows;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::int64_t bytes = files[f].file.bytes, whole = bytes / direct_alignment * direct_alignment;
    if (ends && whole < bytes) windows.push_back({f, whole, bytes - whole});
    for (std::int64_t first = 0; !ends && first < whole; first += most)
      windows.push_back({f, first, std::min(most, whole - first)});
  }
  return windows;
}

}  // namespace

Element element_of(const LogicalTensor& tensor) {
  return tensor.type == DType::fp32 ? Element::f32 : Element::bf16;
}

void write_whole_files(TensorSource& source, std::span<const NamedFile> files, const CopyProgress& progress,
                       const WholeFileOptions& options) {
  std::vector<std::unique_ptr<AsideFile>> out;
  std::vector<int> tensors;
  std::int64_t total = 0, done = 0;
  for (const NamedFile& named : files) {
    check_plan(source.tensors(), named.file);
    out.push_back(std::make_unique<AsideFile>(named.target, named.file.bytes));
    for (const PlacedTensor& placed : named.file.tensors) tensors.push_back(placed.tensor);
    total += named.file.bytes;
  }
  std::mutex lock;  // of `done`
  const auto caller = std::this_thread::get_id();
  const auto write = [&](const std::vector<Window>& windows) {
    parallel_for(windows.size(), options.workers, [&](int) {
      return [&, filler = std::make_shared<Filler>(source),
              room = std::make_shared<AlignedBuffer>(options.window_bytes)](std::size_t index) {
        const Window& window = windows[index];
        const auto bytes = room->span().first(window.bytes);
        filler->fill(files[window.file].file, window.first, bytes);
        out[window.file]->write(bytes, window.first);
        std::int64_t so_far = 0;
        {
          const std::scoped_lock hold(lock);
          so_far = done += window.bytes;
        }
        if (progress && std::this_thread::get_id() == caller) progress(so_far, total);
      };
    });
  };
  write(windows_of(files, options.window_bytes, false));
  write(windows_of(files, options.window_bytes, true));
  if (progress) progress(total, total);
  source.check(tensors);
  for (const auto& file : out) file->commit();
}

}  // namespace holdfast::checkpoint
