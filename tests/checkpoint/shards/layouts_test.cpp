// Every layout of the trainer loads what every other one wrote, bit for bit; and what that costs in bytes.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"
#include "src/base/slice.hpp"
#include "src/shard/layout.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;
using config::Strategy;

constexpr std::array strategies = {Strategy::no_shard, Strategy::full_shard, Strategy::shard_grad_op,
                                   Strategy::hybrid_shard, Strategy::hfsdp};
constexpr std::array worlds = {1, 2, 3, 4, 5, 8};

/// What each rank of a run writes, and what each of them needs back.
struct Ranks {
  std::string name;
  WriterLayout writers;
  std::vector<std::vector<PieceSpan>> owned, held;  ///< by rank
  bool operator==(const Ranks& other) const { return owned == other.owned && held == other.held; }
};

/// Sizes that are no multiple of anything, some smaller than a world.
config::ModelShape odd_model() {
  config::ModelShape odd;
  odd.vocabulary = 97;
  odd.width = 20;
  odd.heads = 2;
  odd.kv_heads = 1;
  odd.ffn = 33;
  odd.layers = 2;
  return odd;
}

std::vector<LogicalTensor> tensors_of_run(const config::ModelShape& shape, DType moments,
                                          const std::vector<std::int64_t>& extra = {}) {
  std::vector<LogicalTensor> tensors;
  for (const char* family : {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"})
    for (const auto& spec : config::tensors_of(shape))
      tensors.push_back({family + spec.name, spec.rows, spec.cols,
                         family == std::string("model/") ? DType::fp32 : moments});
  for (const std::int64_t elements : extra)
    tensors.push_back({"model/extra." + std::to_string(elements), 1, elements});
  return tensors;
}

int group_of(Strategy strategy, int world) {
  const bool hybrid = strategy == Strategy::hybrid_shard || strategy == Strategy::hfsdp;
  return !hybrid ? 0 : world % 2 == 0 ? 2 : 1;
}

/// The pieces of three families as src/train has them, and the extra tensors cut by the same rule. The closed
/// form of the writers has to say the same as the layout of each rank.
Ranks ranks_of(const config::ModelShape& shape, Strategy strategy, int world,
               const std::vector<std::int64_t>& extra = {}) {
  Ranks out;
  out.name = std::to_string(static_cast<int>(strategy)) + "/" + std::to_string(world);
  const int specs = static_cast<int>(config::tensors_of(shape).size());
  for (int rank = 0; rank < world; ++rank) {
    const shard::Mesh mesh = shard::mesh_of(strategy, group_of(strategy, world), world, world, rank);
    const shard::Layout layout = shard::layout_of(shape, mesh);
    const auto spans = [&](const std::vector<shard::Piece>& pieces) {
      std::vector<PieceSpan> list;
      for (int family = 0; family < 3; ++family)
        for (const shard::Piece& piece : pieces)
          list.push_back({family * specs + piece.tensor, piece.first, piece.count});
      return list;
    };
    auto& owned = out.owned.emplace_back(spans(layout.owned));
    auto& held = out.held.emplace_back(spans(layout.held));
    for (std::size_t i = 0; i < extra.size(); ++i) {
      const int tensor = 3 * specs + static_cast<int>(i);
      const std::int64_t n = extra[i], part = slice_part(n, mesh.group, mesh.replicas);
      const Slice slice = slice_of(n, mesh.group, mesh.member(), mesh.replicas);
      const Slice mine = piece_of(slice.count, part, mesh.replica());
      if (mine.count > 0) owned.push_back({tensor, slice.first + mine.first, mine.count});
      held.push_back(mesh.split_optimizer ? PieceSpan{tensor, slice.first + mine.first, mine.count}
                                          : PieceSpan{tensor, slice.first, slice.count});
    }
    if (rank > 0) continue;
    out.writers = {mesh.group, mesh.replicas, {}};
    const auto stored = config::stored_tensors_of(shape);
    for (int family = 0; family < 3; ++family)
      for (std::size_t i = 0; i < stored.size(); ++i)
        out.writers.cuts.push_back({stored[i].parts, layout.slices[i].stride, layout.slices[i].part});
    for (const std::int64_t n : extra)
      out.writers.cuts.push_back({1, std::max<std::int64_t>(1, slice_stride(n, mesh.group, mesh.replicas)),
                                  std::max<std::int64_t>(1, slice_part(n, mesh.group, mesh.replicas))});
  }
  return out;
}

/// All layouts, those that are the same once.
std::vector<Ranks> all_layouts(const config::ModelShape& shape, const std::vector<std::int64_t>& extra) {
  std::vector<Ranks> all;
  for (const int world : worlds)
    for (const Strategy strategy : strategies) {
      Ranks ranks = ranks_of(shape, strategy, world, extra);
      if (std::find(all.begin(), all.end(), ranks) == all.end()) all.push_back(std::move(ranks));
    }
  return all;
}

/// Loads `spans` into memory of their own size and compares them with the truth.
bool loads_right(const fs::path& path, const Manifest& manifest, const Whole& truth,
                 const std::vector<PieceSpan>& spans, std::vector<std::uint64_t>* digests) {
  State state{truth.tensors, {}};
  std::int64_t room = 0;
  for (const PieceSpan& span : spans) room += bytes_of(span, truth.tensors);
  std::vector<std::byte> memory(room, std::byte{0xff});
  std::byte* at = memory.data();
  for (const PieceSpan& span : spans) {
    state.pieces.push_back({span.tensor, span.first, span.count, at});
    at += bytes_of(span, truth.tensors);
  }
  load(path, manifest, state);
  const auto same = [&](const PieceView& piece) {
    const auto tensor = as_size(piece.tensor);
    const std::int64_t each = bytes_of(truth.tensors[tensor].type);
    return piece.count == 0 ||
           std::memcmp(piece.data, truth.values[tensor].data() + piece.first * each, piece.count * each) == 0;
  };
  if (digests)
    for (std::size_t t = 0; const std::uint64_t part : partial_digests(state)) (*digests)[t++] += part;
  return std::all_of(state.pieces.begin(), state.pieces.end(), same);
}

TEST(Layouts, everyOneLoadsWhatEveryOtherWrote) {
  const std::vector<std::int64_t> extra = {0, 1, 3, 1009, 64, 65};
  const config::ModelShape shape = odd_model();
  for (const DType moments : {DType::fp32, DType::bf16}) {
    const std::vector<LogicalTensor> tensors = tensors_of_run(shape, moments, extra);
    const std::vector<Ranks> all = all_layouts(shape, extra);
    EXPECT_GE(all.size(), 13u);
    Whole whole(tensors, 5);
    for (const Ranks& writers : all) {
      EXPECT_EQ(all_spans(tensors, writers.writers), writers.owned) << writers.name;
      const Folder folder;
      const fs::path path = save(folder.path(), whole, 5, {0, 1}, writers.writers).path;
      const Manifest manifest = read_manifest(path);
      EXPECT_EQ(manifest.digests, whole.digests());
      for (const Ranks& readers : all) {
        std::vector<std::uint64_t> digests(tensors.size(), 0);
        for (const auto& spans : readers.owned)
          ASSERT_TRUE(loads_right(path, manifest, whole, spans, &digests)) << writers.name << readers.name;
        ASSERT_EQ(digests, manifest.digests) << writers.name << " -> " << readers.name;
        if (readers.held == readers.owned) continue;
        for (const auto& spans : readers.held)
          ASSERT_TRUE(loads_right(path, manifest, whole, spans, nullptr)) << writers.name << readers.name;
      }
    }
  }
}

/// Over all ranks of a new layout every byte is read once, but for heads, and blocks that a cut goes through:
/// of each piece that a reader takes part of, at most two blocks of 64 KiB.
TEST(Layouts, reshardingReadsLittleMoreThanItNeeds) {
  const std::vector<LogicalTensor> tensors = {
      {"model/a", 1100, 4096}, {"model/norm", 1, 4096}, {"optim/exp_avg/a", 1100, 4096}};
  Whole whole(tensors, 1);
  std::int64_t needed = 0;
  for (const LogicalTensor& tensor : tensors) needed += 4 * tensor.elements();
  for (const auto& [writers, readers] :
       {std::pair(2, 3), std::pair(3, 2), std::pair(2, 2), std::pair(3, 1)}) {
    const Folder folder;
    const fs::path path = save(folder.path(), whole, 1, {0, 1}, even_layout(tensors, writers)).path;
    Whole into(tensors, 0);
    std::int64_t read = 0;
    for (const auto& spans : all_spans(tensors, even_layout(tensors, readers)))
      read += load(path, into.view(spans)).bytes_read;
    EXPECT_EQ(into.values, whole.values);
    EXPECT_LE(static_cast<double>(read), 1.02 * static_cast<double>(needed)) << writers << readers;
    EXPECT_GE(read, needed);
  }
}

config::ModelShape llama2_7b() {
  config::ModelShape llama;
  llama.vocabulary = 32000, llama.width = 4096, llama.heads = 32, llama.kv_heads = 32, llama.ffn = 11008,
  llama.layers = 32;
  return llama;
}

/// Without any data: what the writers of a real model would put on the disk, and who how much.
TEST(Layouts, aRealModelIsWrittenInBalanceAndWithoutWaste) {
  const config::ModelShape shape = llama2_7b();
  const std::vector<LogicalTensor> tensors = tensors_of_run(shape, DType::fp32);
  const std::int64_t logical =
      std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                      [](std::int64_t sum, const LogicalTensor& t) { return sum + 4 * t.elements(); });
  for (const Strategy strategy : {Strategy::full_shard, Strategy::hybrid_shard, Strategy::no_shard})
    for (const int world : {2, 8, 13, 64, 1000}) {
      const Ranks ranks = ranks_of(shape, strategy, world);
      EXPECT_NO_THROW(prove_layout(tensors, ranks.writers));
      EXPECT_EQ(all_spans(tensors, ranks.writers), ranks.owned) << ranks.name;
      std::int64_t most = 0, sum = 0;
      for (const auto& spans : ranks.owned) {
        std::int64_t bytes = 0;
        for (const PieceSpan& span : spans) bytes += bytes_of(span, tensors);
        most = std::max(most, bytes);
        sum += bytes;
      }
      EXPECT_EQ(sum, logical);
      EXPECT_LE(static_cast<double>(most) * world / static_cast<double>(sum), 1.05) << world;
      if (world > 64) continue;
      const ShardPlan first = plan_shard(0, world, tensors, ranks.owned[0]);
      EXPECT_LE(static_cast<double>(first.info.bytes) * world, 1.01 * static_cast<double>(logical)) << world;
    }
}

}  // namespace
}  // namespace holdfast::checkpoint
