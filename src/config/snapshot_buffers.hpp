#pragma once
// How many snapshot buffers a rank has, and how large those of another program's rank may be: one answer for
// ranks, agents and planner. Pure.
//
//   a buffer for                                        local level   without one, CPU   without one, GPU
//   the newest state                                    1             1                  none: it is on the
//   GPU the newest whole snapshot, while that is written    1             none               none the newest
//   snapshot that has a partner copy, where  1             none               none
//     copies are rarer than snapshots
//   a save that is being written                        1             1                  1
//
// Each has room for the parameters and both moments that the rank holds (train::BufferShape). A CPU rank has
// no other memory for them.

#include <cstdint>

namespace holdfast::config {

struct SnapshotUse {
  bool local = false;  ///< there is a local level (checkpoint.local)
  bool gpu = false;    ///< the state lies in the memory of a GPU
  bool rarer_partner_copies =
      false;  ///< there are partner copies, and partner_every is more than local_every
};

constexpr int snapshot_buffers(const SnapshotUse& use) {
  constexpr int being_saved = 1;
  if (!use.local) return (use.gpu ? 0 : 1) + being_saved;
  return 2 + (use.rarer_partner_copies ? 1 : 0) + being_saved;
}

/// Bytes that one generation of a rank of another program than ours may have (client/buffers.c), where the
/// file system of checkpoint.local has `bytes`: there are two generations of each rank of a node, and
/// with `copies` two of each rank of another node. An eighth stays free. In /dev/shm there are also the
/// batches of torch's data loaders, windows of NCCL and Open MPI (about 1 GB for 8 ranks), and of our agent
/// the copies of programs and the logs that wait (at most 1.1 GB): memory that a rank takes without asking,
/// and without which it ends.
constexpr std::int64_t program_share(std::int64_t bytes, int ranks_per_node, bool copies) {
  return bytes / 8 * 7 / (copies ? 4 : 2) / ranks_per_node;
}

}  // namespace holdfast::config
