#include "tests/checkpoint/fixture.hpp"

#include <unistd.h>
#include <cstring>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "checkpoint/index/hash.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"

namespace holdfast::checkpoint::testing {

Folder::Folder() {
  // In memory where possible: these tests are about calls and bytes, and there are thousands of fsyncs.
  const fs::path parent = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (parent / "holdfast-checkpoint-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Whole::Whole(std::vector<LogicalTensor> list, std::int64_t step) : tensors(std::move(list)) {
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto elements = as_size(tensors[t].elements());
    const auto bytes = as_size(bytes_of(tensors[t].type));
    values.emplace_back(elements * bytes);
    for (std::size_t i = 0; i < elements; ++i) {
      const float x =
          static_cast<float>(mix64(mix64(t + 1) + i + 1000003u * static_cast<std::uint64_t>(step)) >> 40) *
              0x1p-20f -
          8.0f;
      const Bf16 rounded = to_bf16(x);
      const void* const from = tensors[t].type == DType::fp32 ? static_cast<const void*>(&x) : &rounded;
      std::memcpy(values[t].data() + i * bytes, from, bytes);
    }
  }
}

std::vector<std::uint64_t> Whole::digests() const {
  std::vector<std::uint64_t> digests;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    digests.push_back(digest_part(0, values[t].data(), tensors[t].type, tensors[t].elements()));
  return digests;
}

std::vector<float> Whole::as_floats(std::size_t tensor) const {
  const auto bytes = as_size(bytes_of(tensors[tensor].type));
  std::vector<float> out;
  for (std::size_t at = 0; at < values[tensor].size(); at += bytes) {
    float x = 0;
    Bf16 half;
    std::memcpy(bytes == 4 ? static_cast<void*>(&x) : &half, values[tensor].data() + at, bytes);
    out.push_back(bytes == 4 ? x : to_float(half));
  }
  return out;
}

State Whole::view(const std::vector<PieceSpan>& spans) {
  State state{tensors, {}};
  for (const PieceSpan& span : spans)
    state.pieces.push_back({span.tensor, span.first, span.count,
                            values[span.tensor].data() + span.first * bytes_of(tensors[span.tensor].type)});
  return state;
}

std::vector<LogicalTensor> odd_tensors() {
  std::vector<LogicalTensor> tensors;
  for (const char* family : {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"}) {
    const std::string name = family;
    const DType type = name == "optim/exp_avg_sq/" ? DType::bf16 : DType::fp32;
    tensors.push_back({name + "model.embed_tokens.weight", 37, 53, type});
    tensors.push_back({name + "model.layers.0.q.weight", 13, 17, type});
    tensors.push_back({name + "model.layers.0.norm.weight", 1, 3, type});
    tensors.push_back({name + "model.scale", 1, 1, type});
    tensors.push_back({name + "model.nothing", 0, 64, type});
    tensors.push_back({name + "model.norm.weight", 1, 1009, type});
  }
  return tensors;
}

std::vector<LogicalTensor> vectors(const std::vector<std::int64_t>& sizes) {
  std::vector<LogicalTensor> tensors;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    tensors.push_back({"model/t" + std::to_string(i), 1, sizes[i]});
  return tensors;
}

WriterLayout even_layout(const std::vector<LogicalTensor>& tensors, int world) {
  WriterLayout layout{world, 1, {}};
  for (const LogicalTensor& tensor : tensors) {
    const std::int64_t each = std::max<std::int64_t>(1, (tensor.elements() + world - 1) / world);
    layout.cuts.push_back({1, each, each});
  }
  return layout;
}

WriterLayout ragged_layout(const std::vector<LogicalTensor>& tensors, int world, std::uint64_t seed) {
  std::uint64_t state = mix64(seed + 1);
  const auto below = [&](std::int64_t n) {
    state = mix64(state + 0x9e3779b97f4a7c15u);
    return static_cast<std::int64_t>(state % static_cast<std::uint64_t>(n));
  };
  const int replicas = world % 2 == 0 ? 2 : 1;
  WriterLayout layout{world / replicas, replicas, {}};
  for (std::size_t t = 0; t < tensors.size();) {
    Cut cut{static_cast<int>(1 + below(std::min<std::int64_t>(3, std::ssize(tensors) - static_cast<int>(t)))),
            1, 1};
    std::int64_t n = 0;
    for (const auto end = t + as_size(cut.tensors); t < end; ++t) n += tensors[t].elements();
    const auto at_least = [](std::int64_t whole, int parts) {
      return std::max<std::int64_t>(1, (whole + parts - 1) / parts);
    };
    cut.stride = at_least(n, layout.members);
    cut.stride += below(cut.stride + 1);
    cut.part = at_least(std::min(n, cut.stride), replicas);
    cut.part += below(cut.part + 1);
    layout.cuts.push_back(cut);
  }
  return layout;
}

std::vector<std::vector<PieceSpan>> all_spans(const std::vector<LogicalTensor>& tensors,
                                              const WriterLayout& layout) {
  std::vector<std::vector<PieceSpan>> all;
  for (int rank = 0; rank < layout.writers(); ++rank) all.push_back(spans_of(tensors, layout, rank));
  return all;
}

std::vector<PieceSpan> whole_spans(const std::vector<LogicalTensor>& tensors) {
  std::vector<PieceSpan> spans;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    spans.push_back({static_cast<int>(t), 0, tensors[t].elements()});
  return spans;
}

Facts some_facts(int world) {
  return {"[model]\nname = \"odd\"\n", world,   "HYBRID_SHARD", "fp32-test", "tokens 0123",
          0xfedcba9876543210u,         "c0ffee"};
}

std::string write_shard(ShardWriter& writer, Whole whole, const RunPoint& point) {
  return writer.write(point, whole.view({writer.spans().begin(), writer.spans().end()}).pieces);
}

Commit write_all_shards(const fs::path& checkpoints, Whole& whole, std::int64_t step, Generation generation,
                        const WriterLayout& layout, WriteOptions options) {
  const int world = layout.writers();
  Commit commit(checkpoints, step, generation, world);
  for (int rank = 0; rank < world; ++rank) {
    ShardWriter writer(checkpoints, rank, generation, whole.tensors, layout, some_facts(world), options);
    commit.add(rank, true, write_shard(writer, whole, {step, step * 4096, step * 8, "calm", "even"}));
  }
  return commit;
}

Committed save(const fs::path& checkpoints, Whole& whole, std::int64_t step, Generation generation,
               const WriterLayout& layout, int keep) {
  Commit commit = write_all_shards(checkpoints, whole, step, generation, layout);
  if (commit.failed()) throw std::runtime_error(commit.why());
  Committed done = commit.commit();
  tidy(checkpoints, {keep, 0}, generation, step);
  return done;
}

std::vector<std::vector<std::byte>> load_all(const fs::path& step_dir,
                                             const std::vector<LogicalTensor>& tensors,
                                             const WriterLayout& layout) {
  Whole into(tensors, 0);
  for (auto& tensor : into.values)
    std::fill(tensor.begin(), tensor.end(), std::byte{0xff});  // NaNs of either type
  for (const auto& spans : all_spans(tensors, layout)) load(step_dir, into.view(spans));
  return into.values;
}

bool holds(const fs::path& step_dir, const std::vector<LogicalTensor>& tensors, std::int64_t step) {
  return load_all(step_dir, tensors, even_layout(tensors, 1)) == Whole(tensors, step).values;
}

std::string with_schema_version(const std::string& manifest, int version) {
  constexpr std::size_t digits = 32;
  const std::string key = "\"digest\":\"";
  const std::size_t comma = manifest.find(','), digest = manifest.find(key) + key.size();
  const std::string head =
      "{\"schema_version\":" + std::to_string(version) + manifest.substr(comma, digest - comma);
  const std::string body = manifest.substr(digest + digits);
  return head + xxh3_128(head, body) + body;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
}

void flip_bit(const fs::path& path, std::uint64_t bit) {
  if (bit / 8 >= fs::file_size(path)) throw std::out_of_range("there is no such bit");
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte ^ 1 << bit % 8));
}

void Saved::save_steps(std::initializer_list<std::int64_t> steps) {
  for (const std::int64_t step : steps) {
    Whole whole(vectors({10}), step);
    save(path, whole, step, {1, 1}, even_layout(whole.tensors, 1), 100);
  }
}

void Saved::damage(std::int64_t step) { fs::resize_file(committed_path(path, step) / "shard-00000.h5", 50); }

}  // namespace holdfast::checkpoint::testing
