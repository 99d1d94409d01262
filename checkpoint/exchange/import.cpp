#include "checkpoint/exchange/import.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <iterator>

#include "checkpoint/exchange/export.hpp"
#include "checkpoint/exchange/safetensors_source.hpp"
#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit.hpp"
#include "checkpoint/index/safetensors_model.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/shards/shard_writer.hpp"
#include "src/base/as_size.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

using safetensors::Source;

constexpr Generation generation{0, 1};

std::vector<LogicalTensor> state_of(const ImportOrder& order) {
  std::vector<LogicalTensor> tensors;
  for (const char* family : {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"})
    for (LogicalTensor tensor : order.model) {
      tensor.type = family == model_family ? DType::fp32 : order.moments;
      tensor.name.insert(0, family);
      tensors.push_back(tensor);
    }
  return tensors;
}

std::int64_t shard_bytes_of(const ImportOrder& order, const std::vector<LogicalTensor>& tensors) {
  constexpr std::int64_t least = 256 << 20, most = 1 << 30;
  if (order.shard_bytes > 0) return order.shard_bytes;
  std::int64_t sum = 0;
  for (const LogicalTensor& tensor : tensors) sum += tensor.elements() * bytes_of(tensor.type);
  return std::clamp(sum / 64, least, most);
}

/// Writers of at most about `shard_bytes` each, one after another through the tensors.
WriterLayout cut(const std::vector<LogicalTensor>& tensors, std::int64_t shard_bytes) {
  std::int64_t elements = 0;
  for (const LogicalTensor& tensor : tensors) elements += tensor.elements();
  const std::int64_t each = std::max<std::int64_t>(1, shard_bytes / bytes_of(DType::fp32));
  const std::int64_t writers = std::max<std::int64_t>(1, (elements + each - 1) / each);
  return {static_cast<int>(writers), 1, {{static_cast<int>(tensors.size()), each, each}}};
}

/// The pieces of one shard, one behind the other in `memory`.
std::vector<PieceView> pieces_in(std::span<std::byte> memory, std::span<const PieceSpan> spans,
                                 std::span<const LogicalTensor> tensors) {
  std::vector<PieceView> out;
  std::byte* at = memory.data();
  for (const PieceSpan& span : spans) {
    out.push_back({span.tensor, span.first, span.count, at});
    at += bytes_of(span, tensors);
  }
  return out;
}

std::int64_t bytes_of_all(std::span<const PieceSpan> spans, std::span<const LogicalTensor> tensors) {
  std::int64_t bytes = 0;
  for (const PieceSpan& span : spans) bytes += bytes_of(span, tensors);
  return bytes;
}

/// Reads the weights of one shard; moments are zero.
void fill(const ImportOrder& order, const Source& source, std::span<const PieceView> pieces,
          std::span<const LogicalTensor> tensors) {
  std::vector<safetensors::Wanted> wanted;
  for (const PieceView& piece : pieces) {
    const auto t = as_size(piece.tensor);
    if (t < order.model.size())
      wanted.push_back(
          {order.model[t].name, piece.first, {static_cast<float*>(piece.data), as_size(piece.count)}});
    else
      std::memset(piece.data, 0, bytes_of(piece.span(), tensors));
  }
  source.read(wanted);
}

/// Removes the folder of checkpoints again if it was made here and stayed empty.
class MadeFolder {
 public:
  explicit MadeFolder(const fs::path& path) : path_(path) {
    std::error_code error;
    made_ = fs::create_directory(path, error);
    if (error) throw system_error("cannot create " + path.string(), error.value());
  }
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;
  ~MadeFolder() {
    if (made_) ::rmdir(path_.c_str());
  }

 private:
  const fs::path& path_;
  bool made_ = false;
};

/// Drops what was written unless it was committed.
class Attempt {
 public:
  Attempt(const fs::path& checkpoints, int world) : commit(checkpoints, 0, generation, world) {}
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() { commit.drop(); }
  Commit commit;
};

}  // namespace

Imported import_safetensors(const ImportOrder& order, const CopyProgress& progress) {
  const Source source(order.source);
  Imported imported;
  imported.skipped = safetensors::require_model(source, order.model, order.tied);
  if (order.tied) safetensors::require_tied_head(source);
  Facts facts = order.facts;
  facts.data_identity = safetensors::imported_identity(source, order.model);
  if (files::exists_or_fail(committed_path(order.checkpoints, 0)))
    throw Error(Exit::usage, committed_path(order.checkpoints, 0).string() + " exists",
                "nothing is overwritten", "Choose another folder?");
  const MadeFolder folder(order.checkpoints);
  const std::vector<LogicalTensor> tensors = state_of(order);
  const WriterLayout layout = cut(tensors, shard_bytes_of(order, tensors));
  const int world = layout.writers();
  std::vector<ShardWriter> writers;
  std::int64_t largest = 0, total = 0, done = 0;
  for (int rank = 0; rank < world; ++rank) {
    writers.emplace_back(order.checkpoints, rank, generation, tensors, layout, facts);
    largest = std::max(largest, bytes_of_all(writers.back().spans(), tensors));
    total += writers.back().file_bytes();
  }
  Attempt attempt(order.checkpoints, world);
  attempt.commit.drop();  // what an import that was killed left
  AlignedBuffer buffers[] = {AlignedBuffer(largest), AlignedBuffer(world > 1 ? largest : 0)};
  const auto pieces_of = [&](int rank) {
    return pieces_in(buffers[rank % 2].span(), writers[rank].spans(), tensors);
  };
  // The next shard is read while this one is written.
  const auto filling = [&](int rank) {
    return std::async(std::launch::async, [&, rank] { fill(order, source, pieces_of(rank), tensors); });
  };
  std::future<void> next = filling(0);
  for (int rank = 0; rank < world; ++rank) {
    next.get();
    if (rank + 1 < world) next = filling(rank + 1);
    ShardWriter& writer = writers[rank];
    attempt.commit.add(rank, true, writer.write(RunPoint{}, pieces_of(rank)));
    if (progress) progress(done += writer.file_bytes(), total);
  }
  if (attempt.commit.failed()) throw Error(Exit::runtime, "cannot commit the import", attempt.commit.why());
  imported.path = attempt.commit.commit().path;
  imported.bytes = total;
  return imported;
}

}  // namespace holdfast::checkpoint
