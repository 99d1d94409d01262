#pragma once
// A group whose members share a node: nothing is sent. A member announces "what I bring may be read" and "I
// have read" with a word each, its stream waits for the others' words, and reads their symmetric memory where
// it is: all_gather with the copy engines, which leaves the multiprocessors to compute; reductions with the
// OrderedReducer's own kernels, over NVLink, in canonical order. So sums are the host's bit by bit whatever
// links the GPUs, and several ranks on one GPU work alike.
//
// A group of one is the same without the words.
#include <memory>
#include <vector>

#include "src/cuda/comm/bulk_group.hpp"
#include "src/cuda/comm/device_world.hpp"
#include "src/cuda/comm/peer_flags.hpp"

namespace holdfast::cuda {

class PeerGroup final : public BulkGroup {
 public:
  /// Collective over `host`, which has the group's members.
  PeerGroup(std::shared_ptr<DeviceWorld> world, comm::Communicator& host, GroupFacts facts);
  ~PeerGroup() override;

  Event all_gather(std::span<const Extent> tensors, std::int64_t wire_bytes, std::uint64_t what,
                   const Event& after) override;
  Event exchange(const Exchange& call, std::int64_t wire_bytes, std::uint64_t what,
                 const Event& after) override;
  void let_go() noexcept override;

 private:
  std::optional<Error> trouble() override;
  std::optional<Error> disagreement(std::uint64_t number, std::uint64_t what) override;
  std::string missing(std::uint64_t number) const override;
  void give_nothing_more(const Error& error) noexcept override;
  void announce(std::uint64_t number, std::uint64_t what) override;

  /// Everybody begins with another peer.
  int peer_at(int distance) const { return (me() + distance) % size(); }
  void await_all(PeerFlags::Flag flag, std::uint64_t number);
  void settle(std::uint64_t number);
  void reduce(const Exchange& call);

  const std::shared_ptr<DeviceWorld> world_;
  std::unique_ptr<PeerFlags> flags_;  // none when alone
  std::vector<const void*> sources_;
};

}  // namespace holdfast::cuda
