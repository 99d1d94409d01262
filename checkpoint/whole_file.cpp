#include "checkpoint/whole_file.hpp"

#include <algorithm>
#include <cstring>
#include <future>

#include "checkpoint/aside_file.hpp"
#include "checkpoint/direct_reader.hpp"
#include "checkpoint/load.hpp"
#include "src/base/digest.hpp"

namespace holdfast::checkpoint {
namespace {

/// Makes the bytes of the new file, window by window.
class Source {
 public:
  Source(const fs::path& step_dir, Manifest manifest, const WholeFile& file)
      : step_dir_(step_dir),
        manifest_(std::move(manifest)),
        tensors_(manifest_.tensors),
        file_(file),
        digests_(tensors_.size(), 0) {}

  /// Bytes [first, first + window.size()) of the file.
  void fill(std::span<std::byte> window, std::int64_t first) {
    const auto end = first + static_cast<std::int64_t>(window.size());
    std::int64_t next = first;  // all before it is filled
    if (const auto head = static_cast<std::int64_t>(file_.head.size()); first < head) {
      next = std::min(end, head);
      std::memcpy(window.data(), file_.head.data() + first, static_cast<std::size_t>(next - first));
    }
    const auto zero_up_to = [&](std::int64_t to) {
      std::memset(window.data() + (next - first), 0, static_cast<std::size_t>(to - next));
    };
    State into{tensors_, {}};
    std::vector<Rounded> rounded;
    std::int64_t scratch = 0;
    for (const PlacedTensor& placed : file_.tensors) {
      const LogicalTensor& tensor = tensors_[static_cast<std::size_t>(placed.tensor)];
      const std::int64_t each = bytes_of(placed.type);
      const std::int64_t from = std::max(placed.offset, first),
                         to = std::min(placed.offset + tensor.elements() * each, end);
      if (from >= to) continue;
      const std::int64_t element = (from - placed.offset) / each, count = (to - from) / each;
      std::byte* const at = window.data() + (from - first);
      zero_up_to(from);
      next = to;
      into.pieces.push_back({placed.tensor, element, count, at});
      if (placed.type == tensor.type) continue;
      rounded.push_back({into.pieces.size() - 1, scratch, at});
      scratch += count;
    }
    zero_up_to(end);
    if (into.pieces.empty()) return;
    if (static_cast<std::int64_t>(scratch_.size()) < scratch)
      scratch_.resize(static_cast<std::size_t>(scratch));
    for (const Rounded& piece : rounded) into.pieces[piece.index].data = scratch_.data() + piece.scratch;
    manifest_ = load(step_dir_, std::move(manifest_), into).manifest;
    for (const PieceView& piece : into.pieces) {
      const auto t = static_cast<std::size_t>(piece.tensor);
      digests_[t] +=
          digest_part(static_cast<std::uint64_t>(piece.first), piece.data, tensors_[t].type, piece.count);
    }
    for (const Rounded& piece : rounded) round(into.pieces[piece.index], piece.to);
  }

  /// With all windows filled.
  void check_digests() const {
    for (const PlacedTensor& placed : file_.tensors) {
      const auto t = static_cast<std::size_t>(placed.tensor);
      if (digests_[t] != manifest_.digests[t])
        throw Damaged("checkpoint " + step_dir_.string() + " is damaged",
                      tensors_[t].name + " has digest " + digest_text(digests_[t]) + ", the manifest says " +
                          digest_text(manifest_.digests[t]));
    }
  }

 private:
  /// A piece that is loaded elsewhere and stored as bf16.
  struct Rounded {
    std::size_t index;
    std::int64_t scratch;
    std::byte* to;
  };

  static void round(const PieceView& piece, std::byte* to) {
    const auto* from = static_cast<const float*>(piece.data);
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const Bf16 x = to_bf16(from[i]);
      std::memcpy(to + 2 * i, &x, 2);
    }
  }

  fs::path step_dir_;
  Manifest manifest_;
  const std::vector<LogicalTensor> tensors_;
  const WholeFile& file_;
  std::vector<std::uint64_t> digests_;  ///< so far
  std::vector<float> scratch_;
};

void check_plan(const Manifest& manifest, const WholeFile& file) {
  auto next = static_cast<std::int64_t>(file.head.size());
  for (const PlacedTensor& placed : file.tensors) {
    const LogicalTensor& tensor = manifest.tensors.at(static_cast<std::size_t>(placed.tensor));
    expects(placed.offset >= next && placed.offset % bytes_of(placed.type) == 0,
            "tensors lie behind the head, in order, aligned and apart");
    expects(placed.type == tensor.type || (placed.type == DType::bf16 && tensor.type == DType::fp32),
            "a tensor is copied as it is, or rounded to bf16");
    next = placed.offset + tensor.elements() * bytes_of(placed.type);
  }
  expects(next <= file.bytes, "the file holds its tensors");
}

}  // namespace

void write_whole_file(const fs::path& step_dir, Manifest manifest, const WholeFile& file,
                      const fs::path& target, const CopyProgress& progress, const WholeFileOptions& options) {
  check_plan(manifest, file);
  AsideFile out(target, file.bytes);
  Source source(step_dir, std::move(manifest), file);
  const std::int64_t window_bytes = std::min(options.window_bytes, whole_pages(file.bytes));
  AlignedBuffer buffers[] = {AlignedBuffer(window_bytes), AlignedBuffer(window_bytes)};
  const auto window_at = [&](std::int64_t first) {
    return buffers[first / window_bytes % 2].span().first(
        static_cast<std::size_t>(std::min(window_bytes, file.bytes - first)));
  };
  // The next window is read while this one is written.
  const auto filling = [&](std::int64_t first) {
    return std::async(std::launch::async, [&, first] { source.fill(window_at(first), first); });
  };
  std::future<void> next;
  if (file.bytes > 0) next = filling(0);
  for (std::int64_t first = 0; first < file.bytes; first += window_bytes) {
    next.get();
    if (first + window_bytes < file.bytes) next = filling(first + window_bytes);
    out.write(window_at(first), first);
    if (progress) progress(std::min(first + window_bytes, file.bytes), file.bytes);
  }
  source.check_digests();
  out.commit();
}

}  // namespace holdfast::checkpoint
