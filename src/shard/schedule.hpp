#pragma once
// When which unit is gathered into which gather buffer, as data: the run follows the table and the wire plan
// counts it, so both agree by construction. Pure; every member of a shard group computes the same.
//
// The uses of a micro-batch are those of model::Weights: forward 0..L, head L+1 (a tied embedding is acquired
// again around it), backward L..1. Embedding, head and kept blocks have a buffer each; all other blocks share
// a ring of buffers. A buffer keeps its unit until another takes it, so some uses need no gather: the last
// blocks of the forward pass, the last of the backward pass (the next micro-step begins with them), embedding
// and head from micro-step to micro-step.
#include <cstdint>
#include <vector>

#include "src/shard/policy.hpp"

namespace holdfast::shard {

enum class Pass { forward, head, backward };

/// One acquire().
struct Use {
  int unit = 0;
  Pass pass = Pass::forward;
  int micro_step = 0;
  int buffer = -1;  ///< where the unit is
};

/// Uses of `micro_steps` micro-batches, without buffers. `backward` false: evaluation.
std::vector<Use> uses_of(int layers, bool tied, int micro_steps, bool backward = true);

/// Buffers that gathered units lie in.
struct GatherBuffers {
  std::vector<int> of_unit;  ///< the unit's own buffer, or -1: it shares the ring
  int ring_first = 0;        ///< buffers [ring_first, ring_first + ring) are the ring
  int ring = 0;
  int count = 0;
  bool in_ring(int buffer) const { return buffer >= ring_first; }
};
/// The ring holds the block in use and as many as may be gathered ahead.
GatherBuffers gather_buffers_of(int layers, const Policy& policy);

struct Gather {
  int unit = 0, buffer = 0;
  int use = 0;  ///< the first use that it serves
  int at = -1;  ///< enqueued when this use is acquired; -1: when the step begins
};

struct Schedule {
  std::vector<Use> uses;
  std::vector<Gather> gathers;  ///< in the order in which they are enqueued
};

/// Ahead of the current use by at most the policy's depth of its pass, and never more gathers in flight than
/// its limit. Of the ring, the buffer is taken whose block is needed again last (Belady 1966); a buffer is
/// never taken from a unit that is in use or that a use within the look-ahead needs.
Schedule schedule_of(std::vector<Use> uses, const GatherBuffers& buffers, const Policy& policy);

}  // namespace holdfast::shard
