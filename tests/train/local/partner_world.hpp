#pragma once
// A rank with a local level and partner copies, without an optimizer: what is in its state follows from the
// rank and the step.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "src/base/digest.hpp"
#include "src/base/run_dir.hpp"
#include "src/snapshot/seal.hpp"
#include "src/train/local/partner.hpp"

namespace holdfast::train {

inline LocalRun partner_run(int world, config::Strategy strategy = config::Strategy::full_shard) {
  config::ModelShape shape;
  shape.name = "micro";
  shape.vocabulary = 128;
  shape.width = 32;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.ffn = 88;
  shape.max_sequence = 64;
  return local_run_of({}, shape, shard::mesh_of(strategy, 0, 1, world, 0), "numerics", "data");
}

/// Folder of a node's local level.
inline std::filesystem::path node_folder(const std::filesystem::path& scratch, int rank, int ranks_per_node) {
  return scratch / std::to_string(rank / ranks_per_node);
}

inline std::vector<std::byte> state_of(const LocalRun& run, int rank, std::int64_t step) {
  std::vector<std::byte> bytes(buffer_shape_of(run, rank).bytes);
  for (std::size_t at = 0; at < bytes.size(); ++at)
    bytes[at] = static_cast<std::byte>(
        mix64(at ^ static_cast<std::uint64_t>(rank) << 40 ^ static_cast<std::uint64_t>(step) << 50));
  return bytes;
}

class PartnerRank {
 public:
  PartnerRank(const LocalRun& run, int rank, int ranks_per_node, const std::filesystem::path& scratch,
              int every, std::unique_ptr<comm::PeerExchange> exchange,
              std::chrono::milliseconds limit = std::chrono::seconds(30))
      : run_(run), rank_(rank) {
    const auto folder = node_folder(scratch, rank, ranks_per_node);
    checkpoint::StateFolder file(folder / snapshot::folder_name(rank, false), local_identity_of(run, rank),
                                 buffer_shape_of(run, rank).bytes, every > 1 ? 3 : 2, false,
                                 run.record_bytes);
    local_ =
        make_host_snapshots({run, rank, std::move(file), {}, 1, [this](auto buffer) { live_ = buffer; }});
    copies_ = std::make_unique<PartnerCopies>(
        PartnerParts{partners_of(rank, copy_destinations(run.mesh, ranks_per_node)), run, rank, folder, every,
                     limit, std::move(exchange)},
        *local_);
  }
  /// A step, its snapshot and the wait for both.
  void step(std::int64_t number) {
    const auto state = state_of(run_, rank_, number);
    const auto next = local_->next();
    std::memcpy(next.empty() ? live_.data() : next.data(), state.data(), state.size());
    if (!next.empty()) local_->moved();
    local_->begin({.step = number, .tokens = 10 * number, .samples = 2 * number});
    local_->join();
  }
  const PartnerCopies& copies() const { return *copies_; }

 private:
  LocalRun run_;
  int rank_;
  std::span<std::byte> live_;
  std::unique_ptr<Snapshots> local_;
  std::unique_ptr<PartnerCopies> copies_;
};

/// The destination of `rank` has its state of `step`, sealed and to the bit.
inline void expect_copy(const LocalRun& run, int rank, int ranks_per_node,
                        const std::filesystem::path& scratch, std::int64_t step) {
  const Partners who = partners_of(rank, copy_destinations(run.mesh, ranks_per_node));
  const auto file = checkpoint::StateFolder::find(
      node_folder(scratch, who.destination, ranks_per_node) / snapshot::folder_name(rank, true),
      local_identity_of(run, rank), buffer_shape_of(run, rank).bytes);
  ASSERT_TRUE(file) << "rank " << rank;
  std::vector<std::byte> state = state_of(run, rank, step);
  const auto digests = piece_digests(buffer_view_of(run, rank, state.data()));
  for (int buffer = 0; buffer < file->buffers(); ++buffer) {
    const auto what = file->sealed(buffer);
    if (!what || what->point.step != step) continue;
    EXPECT_EQ(what->point.tokens, 10 * step);
    EXPECT_EQ(what->digests, digests) << "rank " << rank;
    EXPECT_EQ(piece_digests(buffer_view_of(run, rank, file->buffer(buffer).data())), digests);
    EXPECT_EQ(std::memcmp(file->buffer(buffer).data(), state.data(), state.size()), 0) << "rank " << rank;
    return;
  }
  ADD_FAILURE() << "rank " << rank << " has no copy of step " << step;
}

}  // namespace holdfast::train
