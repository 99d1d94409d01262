#include "checkpoint/import.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <iterator>

#include "checkpoint/catalog.hpp"
#include "checkpoint/commit.hpp"
#include "checkpoint/direct_reader.hpp"
#include "checkpoint/export.hpp"
#include "checkpoint/safetensors_source.hpp"
#include "checkpoint/shard_writer.hpp"

namespace holdfast::checkpoint {
namespace {

using safetensors::Source;

constexpr Generation generation{0, 1};
constexpr const char* head_name = "lm_head.weight";
constexpr const char* embedding_name = "model.embed_tokens.weight";

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

[[noreturn]] void refuse(const ImportOrder& order, const std::string& why) {
  throw Error(Exit::usage, order.source.string() + " is not of this model", why,
              "Name the model file that describes it with --model?");
}

void check_tensor(const ImportOrder& order, const Source& source, const LogicalTensor& wanted) {
  if (!source.has(wanted.name)) refuse(order, "it has no tensor " + wanted.name);
  const safetensors::Tensor& there = source.tensor(wanted.name);
  if (there.dtype != "F32" && there.dtype != "BF16" && there.dtype != "F16")
    throw Error(Exit::usage, "cannot import " + order.source.string(),
                wanted.name + " is of dtype " + there.dtype + "; F32, BF16 and F16 can be imported");
  if (there.shape != shape_of(wanted))
    refuse(order, wanted.name + " has shape " + text_of(there.shape) + ", the model has " +
                      text_of(shape_of(wanted)));
}

/// A tied model's head repeats the embedding in some files.
void check_tied_head(const ImportOrder& order, const Source& source) {
  const safetensors::Tensor &head = source.tensor(head_name), &embedding = source.tensor(embedding_name);
  bool same = head.dtype == embedding.dtype && head.shape == embedding.shape;
  const std::int64_t count = embedding.bytes / safetensors::bytes_of_dtype(embedding.dtype);
  std::vector<float> a, b;
  for (std::int64_t first = 0; same && first < count; first += 1 << 20) {
    const auto n = static_cast<std::size_t>(std::min<std::int64_t>(1 << 20, count - first));
    a.resize(n), b.resize(n);
    source.read(head_name, first, a);
    source.read(embedding_name, first, b);
    same = std::memcmp(a.data(), b.data(), 4 * n) == 0;
  }
  if (!same) refuse(order, std::string(head_name) + " differs from the embedding, and the model ties them");
}

/// Everything that the model has, and nothing that it does not know. Returns what may be left out.
std::vector<std::string> check_source(const ImportOrder& order, const Source& source) {
  std::vector<std::string> known, skipped;
  for (const LogicalTensor& wanted : order.model) {
    check_tensor(order, source, wanted);
    known.push_back(wanted.name);
  }
  std::sort(known.begin(), known.end());
  for (const std::string& name : source.names()) {
    if (std::binary_search(known.begin(), known.end(), name)) continue;
    const bool computed = name.ends_with("rotary_emb.inv_freq") || name == hdf5_meta_tensor;
    const bool tied_head = order.tied && name == head_name;
    if (!computed && !tied_head) refuse(order, "the model has no tensor " + name);
    if (tied_head) check_tied_head(order, source);
    skipped.push_back(name);
  }
  return skipped;
}

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

/// Writers of about `shard_bytes` each, one after another through the tensors.
WriterLayout cut(const std::vector<LogicalTensor>& tensors, std::int64_t shard_bytes) {
  WriterLayout layout;
  std::int64_t room = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::int64_t each = bytes_of(tensors[t].type);
    for (std::int64_t first = 0, n = tensors[t].elements(); first < n;) {
      if (room < each) layout.of_rank.emplace_back(), room = shard_bytes;
      const std::int64_t count = std::min(n - first, room / each);
      layout.of_rank.back().push_back({static_cast<int>(t), first, count});
      first += count, room -= count * each;
    }
  }
  if (layout.of_rank.empty()) layout.of_rank.emplace_back();
  return layout;
}

/// Puts the weights of one shard into its image; what is left are zeros.
void fill(const ImportOrder& order, const Source& source, const ShardWriter& writer,
          std::span<std::byte> image) {
  std::memset(image.data(), 0, image.size());
  for (std::size_t i = 0; i < writer.spans().size(); ++i) {
    const PieceSpan span = writer.spans()[i];
    const auto t = static_cast<std::size_t>(span.tensor);
    if (t >= order.model.size()) continue;  // a moment
    auto* const to = reinterpret_cast<float*>(image.data() + writer.places()[i]);
    source.read(order.model[t].name, span.first, {to, static_cast<std::size_t>(span.count)});
  }
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
  imported.skipped = check_source(order, source);
  if (std::error_code ignored; fs::exists(committed_path(order.checkpoints, 0), ignored))
    throw Error(Exit::usage, committed_path(order.checkpoints, 0).string() + " exists",
                "nothing is overwritten", "Choose another folder?");
  const MadeFolder folder(order.checkpoints);
  const std::vector<LogicalTensor> tensors = state_of(order);
  const WriterLayout layout = cut(tensors, order.shard_bytes);
  const int world = static_cast<int>(layout.of_rank.size());
  std::vector<ShardWriter> writers;
  std::int64_t image_bytes = 0, total = 0, done = 0;
  for (int rank = 0; rank < world; ++rank) {
    writers.emplace_back(order.checkpoints, rank, generation, tensors, layout, order.facts);
    image_bytes = std::max(image_bytes, writers.back().image_bytes());
    total += writers.back().file_bytes();
  }
  Attempt attempt(order.checkpoints, world);
  attempt.commit.drop();  // what an import that was killed left
  AlignedBuffer buffers[] = {AlignedBuffer(image_bytes), AlignedBuffer(world > 1 ? image_bytes : 0)};
  const auto image_of = [&](int rank) {
    const auto bytes = static_cast<std::size_t>(writers[static_cast<std::size_t>(rank)].image_bytes());
    return buffers[rank % 2].span().first(bytes);
  };
  // The next shard is read while this one is written.
  const auto filling = [&](int rank) {
    return std::async(std::launch::async, [&, rank] {
      fill(order, source, writers[static_cast<std::size_t>(rank)], image_of(rank));
    });
  };
  std::future<void> next = filling(0);
  for (int rank = 0; rank < world; ++rank) {
    next.get();
    if (rank + 1 < world) next = filling(rank + 1);
    ShardWriter& writer = writers[static_cast<std::size_t>(rank)];
    attempt.commit.add(rank, true, writer.write(RunPoint{}, image_of(rank)));
    if (progress) progress(done += writer.file_bytes(), total);
  }
  if (attempt.commit.failed()) throw Error(Exit::runtime, "cannot commit the import", attempt.commit.why());
  imported.path = attempt.commit.commit(INT32_MAX).path;
  imported.bytes = total;
  return imported;
}

}  // namespace holdfast::checkpoint
