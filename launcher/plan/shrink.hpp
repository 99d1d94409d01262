#pragma once
// What a run may do without when its spares have run out: whole replicas. The shard groups that stay are
// whole, so that all of the state is there, and the lanes and micro-batches are the run's, so that it
// computes the same bits, only more slowly. Pure.
#include <cstdint>

#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Shrinking {
  int nodes = 0;     ///< active nodes as planned
  int together = 0;  ///< nodes that leave at once, whole replicas and no rank left over; 0: it cannot shrink
  int ranks_per_node = 1, group = 1;
  int parts = 1;  ///< equal parts of a step that replicas share out (config::LanePlan::parts); a replica of a
                  ///< smaller world computes more of them, one after the other
  std::int64_t steps = 0;  ///< of the whole run
  bool operator==(const Shrinking&) const = default;
};

/// `config` is resolved (config::resolve) and checked: the shard group and the lanes are fixed there.
Shrinking shrinking_of(const config::RunConfig& config);

/// How many times as long a step takes on `nodes` active nodes as on all of them, where computing is all that
/// counts: the replica with the most parts decides. R / (R-1) at best, and twice as long where each replica
/// had one part. `nodes` leaves a whole number of replicas.
double slowdown(const Shrinking& shrinking, int nodes);

/// SLURM holds a requeued job back for so long; the queue comes on top, and nobody knows how long that is.
constexpr double requeue_hold_s = 120;
/// For agents and ranks to start again, and to load from the shared level.
constexpr double requeue_start_s = 60;

/// Seconds that the rest of the run takes longer on `nodes` nodes.
double shrink_costs_s(const Shrinking& shrinking, int nodes, double hours_left);
enum class Cheaper { shrink, requeue };
/// With `hours_left` of training at full size (negative: not known, then the queue is taken: nothing speaks
/// for the smaller world).
Cheaper cheaper_when_short(const Shrinking& shrinking, int nodes, double hours_left);

}  // namespace holdfast::launcher
