#pragma once
// A group whose members are on several nodes: NCCL moves the bytes, and does nothing else (nccl.hpp says
// why).
//
//   all_gather        one NCCL all-gather per tensor, in place, all in one launch
//   reductions        in rounds: everybody sends everybody the pieces of the parts that fill half of the
//                     inbox, in one launch, and the OrderedReducer adds up one half while the other is
//                     filled; sources are in canonical order
//
// A group has a communicator of its own, so that gathers, reductions and replicas never wait for each other
// inside NCCL. It is set up, connected, and tried out when the group is made: what is wrong with the network
// shows there.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "src/cuda/comm/bulk_group.hpp"
#include "src/cuda/comm/device_world.hpp"
#include "src/cuda/comm/nccl.hpp"

namespace holdfast::cuda {

class NcclGroup final : public BulkGroup {
 public:
  /// Collective over `host`, which has the group's members. An Error (usage) when they have different
  /// versions of NCCL or share a GPU; (runtime) when they do not reach each other.
  NcclGroup(std::shared_ptr<DeviceWorld> world, comm::Communicator& host, GroupFacts facts);
  ~NcclGroup() override;

  Event all_gather(std::span<const Extent> tensors, std::int64_t wire_bytes, std::uint64_t what,
                   const Event& after) override;
  Event exchange(const Exchange& call, std::int64_t wire_bytes, std::uint64_t what,
                 const Event& after) override;
  /// The aborted communicator keeps nobody waiting.
  void let_go() noexcept override {}

 private:
  /// Elements [first, first + count) of every member's part of a tensor; shorter where a part ends before.
  struct Piece {
    std::size_t tensor = 0;
    std::int64_t first = 0, count = 0;
  };
  std::optional<Error> trouble() override;
  std::string missing(std::uint64_t number) const override;
  void give_nothing_more(const Error& error) noexcept override;
  void announce(std::uint64_t, std::uint64_t) override {}

  void set_up(comm::Communicator& host);
  void release() noexcept;
  void compare_versions(comm::Communicator& host);
  void connect(comm::Communicator& host);
  void try_out();
  /// One launch of NCCL: `calls` says what is in it.
  template <class Calls>
  void launch(const Calls& calls);
  /// The pieces of the next round from `at` on, the same on all members; fewer when all is done.
  void plan_round(const Exchange& call, int arrays, Piece& at);
  void move_round(const Exchange& call, std::byte* inbox);
  void reduce_round(const Exchange& call, const std::byte* inbox);

  const std::shared_ptr<DeviceWorld> world_;
  Nccl& nccl_;
  NcclHandle comm_{};
  bool connected_ = false, registered_ = false;
  std::atomic<bool> stopped_{false};
  std::timed_mutex calling_;  // held by who is inside NCCL

  CudaStream reductions_;  // stream_ moves
  std::byte* inbox_ = nullptr;
  const std::int64_t half_;
  std::vector<Piece> round_;
  std::vector<const void*> sources_;
};

}  // namespace holdfast::cuda
