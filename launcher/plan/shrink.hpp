#pragma once
// What a run may do without when its spares have run out: whole replicas. The shard groups that stay are
// whole, so that all of the state is there, and the lanes and leaves are the run's, so that it computes the
// same bits, only more slowly. Pure.
#include <cstdint>

#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Shrinking {
  int nodes = 0;     ///< active nodes as planned
  int together = 0;  ///< nodes that leave at once, whole replicas and no rank left over; 0: it cannot shrink
  int ranks_per_node = 1, group = 1;
  int lanes = 1;  ///< lanes of the run; a replica of a smaller world adds more of them, one after the other
  std::int64_t steps = 0;  ///< of the whole run
  bool operator==(const Shrinking&) const = default;
};

/// `config` is resolved (config::resolve): the shard group and the lanes are fixed there, once, by `submit`.
Shrinking shrinking_of(const config::RunConfig& config);

/// How many times as long a step takes on `nodes` active nodes as on all of them, where computing is all that
/// counts: the replica with the most lanes decides. R / (R-1) at best, and twice as long where each replica
/// had one lane. `nodes` leaves a whole number of replicas.
double slowdown(const Shrinking& shrinking, int nodes);

/// Lanes with which a world of one replica less would lose less time, a divisor of `leaves`, the fewest of
/// equally good ones; those of now when none is better. More lanes take memory for their sums, and give other
/// bits.
int better_lanes(const Shrinking& shrinking, int leaves);

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
