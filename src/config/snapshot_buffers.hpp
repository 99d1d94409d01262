#pragma once
// How many snapshot buffers a rank has: one answer for ranks and planner. Pure.
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

}  // namespace holdfast::config
