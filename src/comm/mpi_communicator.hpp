#pragma once
// The communicator of several ranks: fills the queue of its group, which the communication thread works off.
// One thread at a time may call it. MPI appears only below (mpi_group, mpi_engine).
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/comm/mpi_engine.hpp"

namespace holdfast::comm {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiEngine> engine, std::shared_ptr<MpiGroup> group,
                  std::shared_ptr<std::uint32_t> next_key, bool is_world);
  /// Waits for what was enqueued, except while an exception unwinds: then it is given up.
  ~MpiCommunicator() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::span<std::byte> symmetric_memory(std::int64_t bytes) override;
  Event all_gather(std::span<const Extent> tensors, const Event& after = {}) override;
  Event ordered_reduce_scatter(std::span<const Extent> gradients, OrderedReducer& reducer,
                               const Event& after = {}) override;
  Event exchange_partial_sums(std::span<const Extent> tensors, std::int64_t array_stride,
                              std::span<const int> sums_of, OrderedReducer& reducer,
                              const Event& after = {}) override;
  void all_reduce(std::span<std::uint64_t> words, Scalar how) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  const Wire& wire() const override { return wire_; }
  bool awaited(std::span<std::int64_t> by_rank) const override;
  void abort(std::string_view why) noexcept override;

  /// split() into a group that belongs to another world: other limits, other nodes, its own symmetric memory.
  std::unique_ptr<MpiCommunicator> regroup(int color, int key, std::string name,
                                           std::shared_ptr<MpiWorld> world);

 private:
  Event bulk(Operation& operation, Collective kind, std::int64_t wire_bytes, const Event& after);
  void small(Collective kind, std::span<std::byte> bytes, Scalar how, int root, std::int64_t wire_bytes);
  /// Everybody's words, one after another, by member.
  std::vector<std::uint64_t> share(std::span<const std::uint64_t> words);
  SharedMemory share_memory(int owner, std::int64_t bytes, std::size_t first, std::size_t count);
  void check_extents(std::span<const Extent> tensors, std::int64_t behind, bool whole_parts) const;

  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiGroup> group_;
  std::shared_ptr<std::uint32_t> next_key_;
  bool is_world_;
  int exceptions_at_start_;
  std::vector<int> one_each_;
  // Known when an operation is enqueued. all_gather: this rank's part, to each of the others.
  // ordered_reduce_scatter and exchange_partial_sums: the others' parts of what this rank brings. all_reduce:
  // the words once. broadcast: the root's bytes once. Small collectives go to a neighbour or two, however
  // many members there are.
  Wire wire_;
};

}  // namespace holdfast::comm
