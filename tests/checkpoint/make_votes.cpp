// The votes on a checkpoint of Llama 2 70B, fully sharded, that nobody has written: for
// scripts/bench/commit_votes.sh, not a test.
//   make_votes CHECKPOINTS VOTES MODEL_TOML STEP TERM ATTEMPT WORLD
// Puts a vote of each rank into VOTES/RANK, and files of the sizes that it names into the temporary folder of
// STEP: holes, without a byte on the disk.
#include <cstdlib>
#include <iostream>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/vote.hpp"
#include "src/base/digest.hpp"
#include "src/base/files.hpp"
#include "src/base/slice.hpp"
#include "src/config/load.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::checkpoint {
namespace {

void make_hole(const fs::path& path, std::int64_t bytes) {
  files::replace_atomically(path, "");
  fs::resize_file(path, static_cast<std::uintmax_t>(bytes));
}

/// A shard file as the writer would lay it out, but for the size of its metadata.
ShardInfo shard_of(int rank, std::int64_t payload) {
  ShardInfo shard;
  shard.file = shard_file_name(rank);
  shard.data_offset = 64 * page_bytes;
  shard.payload_offset =
      shard.data_offset + head_bytes((rounded_to_pages(payload) + block_bytes - 1) / block_bytes);
  shard.bytes = rounded_to_pages(shard.payload_offset + payload);
  shard.root = std::string(32, 'a');
  return shard;
}

/// As full_shard has it: every stored tensor is cut into equal slices.
WriterLayout layout_of(const config::ModelShape& shape, int world) {
  WriterLayout out{world, 1, {}};
  for (int family = 0; family < 3; ++family)
    for (const auto& stored : config::stored_tensors_of(shape)) {
      const std::int64_t stride = slice_stride(stored.elements(), world);
      out.cuts.push_back({stored.parts, stride, stride});
    }
  return out;
}

void make_votes(const fs::path& checkpoints, const fs::path& votes, const fs::path& model, std::int64_t step,
                Generation generation, int world) {
  const config::ModelShape shape = config::load_model(model);
  const auto specs = config::tensors_of(shape);
  Manifest common;
  common.generation = generation;
  common.point = {step, step * 4'000'000, step * 1000};
  common.facts.model_toml = files::read_text(model);
  common.facts.world = world;
  common.facts.strategy = "full_shard";
  for (const char* family : {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"})
    for (const auto& spec : specs) common.tensors.push_back({family + spec.name, spec.rows, spec.cols});
  common.layout = layout_of(shape, world);
  const fs::path folder = temporary_path(checkpoints, step, generation);
  fs::create_directories(folder);
  fs::create_directories(votes);
  for (int rank = 0; rank < world; ++rank) {
    const auto spans = spans_of(common.tensors, common.layout, rank);
    const ShardInfo shard = shard_of(rank, payload_bytes(common.tensors, common.layout, rank));
    std::vector<std::uint64_t> digests;
    for (const PieceSpan& span : spans)
      digests.push_back(
          mix64(static_cast<std::uint64_t>(span.tensor) << 40 ^ static_cast<std::uint64_t>(span.first)));
    files::replace_atomically(votes / std::to_string(rank), vote_text(rank, common, shard, digests));
    make_hole(folder / shard.file, shard.bytes);
  }
}

}  // namespace
}  // namespace holdfast::checkpoint

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  try {
    holdfast::checkpoint::make_votes(argv[1], argv[2], argv[3], std::atoll(argv[4]),
                                     {std::atoi(argv[5]), std::atoi(argv[6])}, std::atoi(argv[7]));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
