#pragma once
// A run of a few ranks that never trained: its state at any step is known, its snapshots and checkpoints
// are real, and so is everything that restores it. Ranks are threads, nodes are folders.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/train/restore/restore.hpp"
#include "tests/checkpoint/fixture.hpp"
#include "tests/support/fake_exchange.hpp"
#include "tests/support/thread_world.hpp"

namespace holdfast::train::testing {

namespace fs = std::filesystem;

struct Cluster {
  config::Strategy strategy = config::Strategy::hybrid_shard;
  int group = 0;  ///< of hybrid_shard and hfsdp; 0: a node
  int nodes = 2, ranks_per_node = 2;
  DType moments = DType::fp32;
  int vocabulary = 19;  ///< how large the model is
  int world() const { return nodes * ranks_per_node; }
};

/// What a rank had when it was restored.
struct RankAfter {
  RestoredFrom from;
  bool holds_truth = false;  ///< all its pieces are those of the step that it says
  bool sealed = false;       ///< its live buffer is a snapshot of that point
  int buffer = -1;           ///< its live buffer; -1: no local level
};

struct RestartOptions {
  bool local = true, network = true;
  bool network_breaks = false;  ///< at the first piece
  RestoreOrder order = {};
  checkpoint::Patience patience = {};
};

class DisruptedRun {
 public:
  DisruptedRun(const Cluster& cluster, const fs::path& root);

  int world() const { return cluster_.world(); }
  int kind(int rank) const { return mesh_of(rank).split_optimizer ? rank : rank % mesh_of(rank).group; }
  int pieces(int rank) const { return static_cast<int>(spans_[rank].size()); }
  /// Pieces of its kind in which `writer` owns something.
  std::vector<int> pieces_of_writer(int writer) const;
  const fs::path& root() const { return root_; }
  RunDir dir() const { return {root_ / "run"}; }
  fs::path folder(int node) const { return root_ / ("node-" + std::to_string(node)) / "state"; }
  fs::path file(int node, int of, bool copy) const;
  checkpoint::RunPoint point(std::int64_t step) const {
    return {step, step * 4096, step * 8, "calm", "even"};
  }
  std::int64_t state_bytes() const;

  /// Seals the state of `step` in a buffer of a file; `run`: identity of another run than this one, when
  /// given.
  void snapshot(int node, int of, bool copy, int buffer, std::int64_t step, std::uint64_t run = 0) const;
  void save(std::int64_t step) const;
  /// One bit of a piece changes.
  void flip(int node, int of, bool copy, int buffer, int piece, std::uint64_t bit) const;
  void unseal(int node, int of, bool copy, int buffer) const;
  /// One bit of the payload of a shard; false: it has none.
  bool flip_shard(std::int64_t step, int writer, std::uint64_t bit) const;
  fs::path shard(std::int64_t step, int writer) const;

  /// All ranks begin again, rank r on node_of[r], and restore.
  std::vector<RankAfter> restart(const std::vector<int>& node_of, const RestartOptions& options,
                                 tests::FakeNetwork& network) const;
  /// The same of a restore that fails on every rank: each one's error.
  std::vector<Error> failed_restart(const std::vector<int>& node_of, const RestartOptions& options,
                                    tests::FakeNetwork& network) const;
  std::string digest(std::int64_t step) const;

 private:
  shard::Mesh mesh_of(int rank) const;
  LocalRun local_run(int rank) const;
  checkpoint::StateFolder open(int node, int of, bool copy, std::uint64_t run = 0) const;
  RankAfter restart_rank(int rank, int node, const RestartOptions& options, comm::Communicator& world,
                         tests::FakeNetwork& network) const;
  bool holds(const checkpoint::State& held, std::int64_t step) const;

  Cluster cluster_;
  fs::path root_;
  config::ModelShape shape_;
  std::vector<checkpoint::LogicalTensor> tensors_;
  std::vector<std::vector<checkpoint::PieceSpan>> spans_;  ///< rank -> what it holds
  checkpoint::WriterLayout writers_;
};

}  // namespace holdfast::train::testing
