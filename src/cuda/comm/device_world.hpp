#pragma once
// What all groups of one world have in common: who shares a node, and the symmetric memory on the GPUs.
//
// Symmetric memory is plain device memory that the ranks of a node open from each other (CUDA IPC), also
// several ranks on one GPU. It is not ncclMemAlloc()ed: such memory has no IPC handle of this kind, and what
// NCCL gives for it (symmetric windows, copy-engine collectives) serves groups inside a node, which do
// without NCCL. NCCL gets it registered as a user buffer instead, so that network cards read and write it
// without a copy.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"
#include "src/comm/shared_memory.hpp"
#include "src/cuda/comm/device_communicator.hpp"

namespace holdfast::cuda {

// Set-up talk over the host's communicator: collective over `host`.
/// Everybody's words, one after another, by member.
std::vector<std::uint64_t> share(comm::Communicator& host, std::span<const std::uint64_t> words);
/// Throws on all members when one of them has failed: its own error there, else `problem` and who it was.
void agree(comm::Communicator& host, const std::optional<Error>& failure, const std::string& problem);
/// The same zeroed memory on all members with the same `owner` (a member, which creates it): they are of one
/// node.
comm::SharedMemory share_memory(comm::Communicator& host, int owner, std::int64_t bytes);

class DeviceWorld {
 public:
  /// Finds out who shares a node and can read the others' memory. Collective over `host`, which is all ranks.
  DeviceWorld(comm::Communicator& host, Runtime& runtime, Nccl* nccl, Watch& watch,
              const CommunicatorOptions& options);
  /// All groups are gone. Peers read my memory no longer, or it stays until the process ends.
  ~DeviceWorld();
  DeviceWorld(const DeviceWorld&) = delete;
  DeviceWorld& operator=(const DeviceWorld&) = delete;

  int rank() const { return rank_; }
  /// These ranks read each other's symmetric memory.
  bool near(std::span<const int> ranks) const;
  /// Two of these ranks are on the same GPU.
  bool share_a_gpu(std::span<const int> ranks) const;

  /// See comm::Communicator::symmetric_memory(). `host`: as above.
  std::span<std::byte> allocate(comm::Communicator& host, std::int64_t bytes);
  bool allocated() const { return memory_ != nullptr; }
  std::span<std::byte> memory() const { return {memory_, bytes_}; }
  /// [data, data + bytes) is mine.
  bool contains(const void* data, std::int64_t bytes) const;
  /// The same place in the memory of a rank that is near.
  std::byte* at(int rank, const void* mine) const {
    return base_of_[rank] + (static_cast<const std::byte*>(mine) - memory_);
  }

  /// A stream may still touch symmetric memory: it stays until the process ends.
  void leave_memory() noexcept { left_ = true; }

  Runtime& runtime;
  Nccl* const nccl;
  Watch& watch;
  const CommunicatorOptions options;

 private:
  struct Leaving;
  std::vector<int> mates() const;  // ranks of this node, with this one
  void probe(comm::Communicator& host);
  /// Device memory of the mates, by rank; null for others and for this one.
  std::vector<std::byte*> open_mates(comm::Communicator& host, const IpcHandle& mine, std::int64_t bytes,
                                     std::optional<Error>& failure);
  void close(std::span<std::byte* const> opened) noexcept;
  void zero(void* memory, std::int64_t bytes);

  const int rank_, size_;
  std::vector<std::uint64_t> node_of_, gpu_of_;  // by rank
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::byte*> base_of_;  // by rank; null: not near
  comm::SharedMemory leaving_;       // of the node
  bool left_ = false;
};

}  // namespace holdfast::cuda
