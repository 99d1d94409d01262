#pragma once
// Communicators whose bulk operations run on a GPU, between memory of GPUs.
//
// Small operations go to the host's communicator (integers stay there). Bulk operations are enqueued by the
// caller's thread on a stream of the group and run beside compute, each group by itself:
//   - all members on one node: they read each other's memory (peer_communicator);
//   - members on several nodes: NCCL moves the bytes (nccl_communicator).
// Both hand what members brought to the same OrderedReducer in the same canonical order as the host's
// communicators do, so the bits of a sum depend neither on NCCL nor on which ranks share a node.
//
// Unlike on the host, a OrderedReducer is called by the caller's thread before ordered_reduce_scatter() or
// exchange_partial_sums() returns, and what it throws comes from there. Members of one node hand a whole part
// to the OrderedReducer at once; over NCCL it comes in pieces that fit the inbox.
#include <chrono>
#include <cstdint>
#include <memory>

#include "src/comm/communicator.hpp"
#include "src/cuda/comm/nccl.hpp"
#include "src/cuda/comm/watch.hpp"
#include "src/cuda/runtime/runtime.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::cuda {

struct CommunicatorOptions {
  std::chrono::milliseconds limit{60'000};     ///< no operation takes longer once it has begun
  flight::FlightRecorder* recorder = nullptr;  ///< null: not recorded
  bool explain = true;  ///< a time-out also says in the log what the flight record says
  std::int64_t inbox_bytes = std::int64_t{64} << 20;  ///< device memory of each group that spans nodes
  bool share_gpu = false;  ///< ranks of one GPU may have NCCL between them (HOLDFAST_SHARE_GPU)
  std::uint64_t node = 0;  ///< not 0: ranks with equal numbers share a node, else the kernel says
};

/// The same group as `host` with bulk operations on memory of this GPU. Collective. `nccl` may be null: then
/// a group that spans nodes is an Error (runtime). `watch` is the device's, and the streams that wait for
/// events of the communicator call Watch::check() (see there). The bulk operations of `host` are never used.
/// All arguments outlive the communicator and its splits, of which `host` becomes a part.
std::unique_ptr<comm::Communicator> make_device_communicator(std::unique_ptr<comm::Communicator> host,
                                                             Runtime& runtime, Nccl* nccl, Watch& watch,
                                                             const CommunicatorOptions& options);

}  // namespace holdfast::cuda
