#pragma once
// The plan: what runs where, what it costs, what it survives. A pure function of settings, model, cluster
// file and node list; no cluster is asked. `holdfast plan` prints it, the leader makes it again with the
// nodes that SLURM gave.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/foresee/forecast.hpp"
#include "launcher/plan/host_memory.hpp"
#include "launcher/plan/shrink.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct PlannedNode {
  std::string name;
  std::string scalable_unit;  ///< "": not in the cluster file
  int slot = -1;              ///< logical slot of an active node; -1: a spare
  bool batch_host = false;    ///< runs the batch script
  bool operator==(const PlannedNode&) const = default;
};

/// Rank ids belong to slots, never to hosts: rank = slot * ranks_per_node + local.
struct PlannedRank {
  int rank = 0, slot = 0, local = 0;
  int shard_group = 0;    ///< which one; its place in it is rank % shard_group size
  int replica_group = 0;  ///< ranks that hold the same slices; = place in the shard group
  int gpu = 0;            ///< index on the node
  std::string nic;        ///< RDMA device; "": none
  int numa = 0, rail = 0;
  bool operator==(const PlannedRank&) const = default;
};

/// Bytes that one rank keeps from step to step; the same on every rank.
struct StateBytes {
  std::int64_t parameters = 0;  ///< fp32 master weights of what its optimizer updates
  std::int64_t copies = 0;  ///< parameters in their own type that stay: its slices under hfsdp, all of them
                            ///< where nothing is sharded and they are not fp32
  std::int64_t optimizer = 0;     ///< both moments
  std::int64_t accumulators = 0;  ///< gradient sums: those of config::LanePlan, and under hfsdp its part of
                                  ///< the result
  std::int64_t frozen = 0;        ///< its slices of what is not trained, in the parameters' type
  std::int64_t total() const { return parameters + copies + optimizer + accumulators + frozen; }
  bool operator==(const StateBytes&) const = default;
};

struct Memory {
  StateBytes state;
  std::int64_t gathered = 0;     ///< room for whole units, gathered from the shard group
  std::int64_t gradients = 0;    ///< gradients of one micro-batch, until they are reduced
  std::int64_t activations = 0;  ///< an estimate, the only one here; within a thousandth
  std::int64_t attention = 0;    ///< scratch of its backward pass, on a GPU
  std::int64_t reserved = 0;     ///< driver and libraries, on a GPU
  std::int64_t offloaded = 0;    ///< of the optimizer state: in the node's memory instead of the GPU's
  std::int64_t capacity = 0;     ///< of one rank; 0: unknown
  std::int64_t needed() const {
    return state.total() + gathered + gradients + activations + attention + reserved - offloaded;
  }
  bool operator==(const Memory&) const = default;
};

/// The local level of checkpoints.
struct LocalPlan {
  std::string folder;           ///< on every node; "": there is none
  int every = 0;                ///< steps between snapshots
  int partner_every = 0;        ///< steps between copies on another node; 0: none are made
  std::int64_t node_bytes = 0;  ///< that snapshots and copies take of `folder`, on each node
  bool operator==(const LocalPlan&) const = default;
};

struct SurvivedLoss {
  std::string loss;        ///< what is lost, in words
  std::string level;       ///< where state comes back from: local, peer, partner, shared
  std::int64_t steps = 0;  ///< computed again, at most
  bool operator==(const SurvivedLoss&) const = default;
};

struct Survival {
  int nodes_lost = 0;                ///< nodes that may fail before spares have run out
  std::vector<SurvivedLoss> losses;  ///< from the smallest to the largest
  double hours_between_losses = 0;   ///< of any active node; 0: unknown
  std::vector<std::string> says;     ///< the same in sentences
  bool operator==(const Survival&) const = default;
};

struct Plan {
  std::string job, cluster, model;
  std::vector<std::string> program;  ///< another one than holdfast-train: what is known of it, in sentences
  std::string image;                 ///< in which agents and ranks run; "": on the node itself
  bool hypothetical = true;          ///< the nodes are a guess, not SLURM's answer
  config::Strategy strategy = config::Strategy::hybrid_shard;
  config::PrecisionPolicy precision;
  int active = 0, spares = 0;
  int ranks_per_node = 0;
  int group_size = 0;  ///< ranks of a shard group
  int global_batch = 0, micro_batch = 1, lanes = 0, sequence = 0;
  std::int64_t steps = 0;             ///< of the run; 0: the data say, and are not known
  std::int64_t samples_of_epoch = 0;  ///< sequences of one pass over the data; 0: not known to who made it
  std::vector<PlannedNode> nodes;     ///< active by slot, then spares by scalable unit and name
  std::vector<PlannedRank> ranks;
  std::vector<int>
      leaders;  ///< nodes (indices) in the order in which they may lead: batch host, spares, active
  std::int64_t parameters = 0;  ///< of the model
  Memory memory;
  std::int64_t checkpoint_bytes = 0;  ///< data of one checkpoint: parameters and moments, each byte once
  int checkpoint_every = 0;           ///< steps; 0: only at the end
  double checkpoint_floor_s = 0;      ///< at the whole file system's write bandwidth; 0: unknown
  LocalPlan local;
  HostMemory host;
  Forecast forecast;
  Survival survival;
  Shrinking shrinking;                   ///< what a world without a replica would be
  std::vector<std::string> when_short;   ///< what happens when spares have run out, in sentences
  std::vector<std::string> environment;  ///< "NAME=value" of every rank, beside its RankEnv
  std::vector<std::string> warnings;

  int world() const { return active * ranks_per_node; }
  int micro_batches() const { return global_batch / micro_batch; }  ///< of a step, over all ranks
  int replicas() const { return group_size > 0 ? world() / group_size : 0; }
  /// Ranks of shard group `g`: consecutive ones.
  std::vector<int> shard_group(int g) const;
  /// Ranks that hold the same slices, one of each shard group.
  std::vector<int> replica_group(int place) const;
  /// Node index of the active node in `slot`.
  int node_of_slot(int slot) const { return slot; }
  bool operator==(const Plan&) const = default;
};

/// `nodes`: SLURM's list, or `hypothetical_nodes`. The first cluster.nodes + cluster.spares of them are
/// planned; fewer spares than asked for give a warning. `batch_host`: absent = a hypothetical plan, and the
/// first node by name, which is where SLURM would start the script. Throws Error: usage (settings contradict
/// each other), impossible (too few nodes, too many ranks for a node, a rank's or a node's memory does not
/// suffice).
Plan make_plan(const config::RunConfig& config, const config::ModelShape& model,
               const config::ClusterFacts& facts, const std::vector<std::string>& nodes,
               const std::optional<std::string>& batch_host);

/// `config`, which is resolved, with 8-bit copies of weights kept for a step (config::keeps_copies) where
/// they cost nothing but their memory, every rank having whole weights, and that suffices: also on as few
/// nodes as the run may shrink to with these settings. Changes no bit of the run.
config::RunConfig with_copies_that_fit(const config::RunConfig& config, const config::ModelShape& model,
                                       const config::ClusterFacts& facts);

constexpr int plan_schema_version = 12;
nlohmann::json to_json(const Plan& plan);

}  // namespace holdfast::launcher
