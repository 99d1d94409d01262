#pragma once
// All settings of a run as plain structs, default beside each field, one struct per TOML table. `bind.cpp`
// binds file keys to these fields, `check.cpp` holds the rules across them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/read_back.hpp"

namespace holdfast::config {

enum class Strategy { no_shard, full_shard, hybrid_shard, shard_grad_op, hfsdp };
enum class Precision { fp32, bf16, automatic };
enum class Products { bf16, fp8 };
enum class Scaling { delayed, current };
enum class ActivationCheckpointing { none, selective, attention, full };
enum class Schedule { cosine, linear, constant, wsd };
enum class GuardAction { report, stop, skip, rollback };
enum class Device { automatic, cpu, cuda };
enum class Offload { none, moments };
/// How the weights that adapters sit beside are kept.
enum class Base { parameters, int8, nf4 };
enum class Interval { fixed, automatic };
enum class WhenBusy { wait, skip };
enum class Partner { automatic, none };
/// What becomes of a rank whose own compute time is far above the others'.
enum class OnStraggler { report, substitute };
/// Spares have run out: shrink by a replica or go back into the queue, whichever `plan` says costs less; or
/// always the one, where it is possible; or end with Exit::out_of_spares.
enum class WhenShort { automatic, shrink, requeue, stop };
/// What the program of a rank does beside training: it uses the client and so speaks to its agent; it saves
/// when it gets SIGTERM, and then ends; neither. Automatic: as a plain one, until it speaks.
enum class RankKind { automatic, client, sigterm, plain };
/// What puts the step of the agents into an image.
enum class ContainerRuntime { pyxis, apptainer };

/// [run]
struct Run {
  std::string name = "holdfast";  ///< shown by squeue; any printable text
  std::string dir;  ///< run directory on the shared file system; relative to where `submit` was typed; empty:
                    ///< runs/NAME
  std::string resume =
      "auto";  ///< auto: newest verified checkpoint of the run directory; none; or a checkpoint's path
  std::string other_numerics = "refuse";  ///< a checkpoint made under another numerics identity: refuse, or
                                          ///< continue, which is not bit-identical and said to be so
  bool operator==(const Run&) const = default;
};

/// [cluster]
struct Cluster {
  std::string file = "minipod";  ///< a name in configs/clusters, or a path to a cluster file
  int nodes = 1;                 ///< active nodes
  int spares = 0;                ///< nodes kept inside the allocation to replace failed ones
  int ranks_per_node = 0;        ///< 0: one per GPU of the cluster file
  bool operator==(const Cluster&) const = default;
};

/// [slurm]: passed to sbatch as they are; empty or 0 means not given
struct Slurm {
  std::string partition, account, qos, reservation, time, constraint;
  std::vector<std::string> extra;  ///< further sbatch arguments, one per element, never evaluated by a shell
  std::string
      bundle;  ///< archive made by scripts/bundle.sh that the job brings to its nodes; "": Holdfast is there
  int comment_s =
      300;  ///< how often the job's comment says how the run gets on, 60 s or more; 0: it is left alone
  bool operator==(const Slurm&) const = default;
};

/// [container]: the agents, and with them the ranks, run in an image; the batch script does not
struct Container {
  std::string image;  ///< as the runtime names it; "": agents run on the node itself
  ContainerRuntime runtime = ContainerRuntime::pyxis;
  std::vector<std::string> mounts;  ///< "SOURCE[:TARGET[:FLAGS]]", beside what Holdfast mounts itself
  bool writable = false;            ///< the image's own folders, for as long as an agent runs
  std::string workdir;              ///< working directory in the image; "": the run directory
  std::vector<std::string> extra;   ///< further options: of srun with pyxis, of `apptainer exec`
  bool operator==(const Container&) const = default;
};

/// [rank]
struct Rank {
  std::vector<std::string> command = {"holdfast-train"};  ///< argument list; not evaluated by a shell
  std::string launch = "auto";  ///< mpi: its agents serve PMIx to it; direct: it has no MPI; auto: mpi for
                                ///< holdfast-train, else direct
  RankKind kind = RankKind::automatic;   ///< what may be promised of it; holdfast-train always speaks
  std::vector<std::string> environment;  ///< "NAME=value" added for every rank
  std::vector<std::string> warm;         ///< modules that waiting Python interpreters have imported before
  double buffers_gib = 0;  ///< that a rank keeps in snapshot buffers at a time; 0: not known before it asks
  std::string directory;   ///< where ranks work; "": another program than holdfast-train where the run was
                           ///< submitted, holdfast-train in the run directory
  bool operator==(const Rank&) const = default;
};

/// [supervise]
struct Supervise {
  int heartbeat_ms = 200;        ///< agents and ranks report this often
  int node_silence_ms = 2000;    ///< an agent silent for so long is lost, and its node with it
  int leader_silence_ms = 1500;  ///< a leader silent for so long is succeeded by the next agent in line
  int start_s = 60;              ///< every rank must have called home this long after its attempt began
  int step_s =
      600;  ///< a rank that is alive but shows no progress for so long is hung, whatever is known of its pace
  double hang_factor = 3;  ///< for so many times what a phase has taken so far, or is planned, ...
  int hang_floor_s = 5;    ///< ... or for so long, whichever is more
  int hang_outside_s =
      300;  ///< the same floor for programs that do not report, seen from outside; 0: they are never hung
  double straggler_ratio = 1.5;  ///< own compute time of a step over the ranks' median that makes a straggler
  OnStraggler on_straggler = OnStraggler::report;
  int stop_s = 10;         ///< ranks asked to end get so long before SIGKILL
  int clear_s = 60;        ///< a node on which killed ranks are still there after so long is lost, if most
                           ///< other nodes have ended theirs
  int max_restarts = 100;  ///< attempts that the program may end between two checkpoints
  int max_same_step = 3;  ///< attempts in a row that the program may end at one step with one error (exit 93)
  int max_without_checkpoint = 10;  ///< attempts in a row that the program may end without a new step or a
                                    ///< new durable one (exit 93)
  int infrastructure_s =
      600;  ///< the infrastructure may end attempts for so long before a new step (exit 75)
  int assumed_progress_s =
      10;  ///< an attempt whose program says nothing of its progress counts as a step forward after so long
  int max_node_failures = 2;  ///< a node that failed so often is not used again in this job
  int max_evictions = 0;      ///< nodes that signs of one kind may evict in this job; 0: half of its spares
  int min_nodes = 0;  ///< active nodes that the run may shrink to when spares run out; 0: it never shrinks
  WhenShort when_short = WhenShort::automatic;  ///< spares have run out
  int check_spares_s = 60;  ///< seconds between checks of idle spares; 0: no node is checked
  int log_attempts = 20;    ///< the logs of so many last attempts are kept, and of the first; 0: of all
  std::string
      ledger;    ///< folder where failures of nodes are kept across jobs; "": the cluster file's, or none
  int port = 0;  ///< the first of the agents' TCP ports; 0: derived from the job id
  bool operator==(const Supervise&) const = default;
};

/// [model]
struct Model {
  std::string file = "tiny";  ///< a name in configs/models, or a path to a model file, a Hugging Face folder
                              ///< or its config.json
  std::string weights;  ///< what a run without a checkpoint begins with: a Hugging Face folder, a safetensors
                        ///< file or index, a checkpoint or a run; "": random weights
  bool operator==(const Model&) const = default;
};

/// [data]
struct Data {
  std::string tokens;                   ///< token file made by `holdfast data prepare`
  std::vector<std::string> mixture;     ///< instead: "PATH WEIGHT" of several, see mixture.hpp
  std::vector<std::string> validation;  ///< token files of held-out text; by the first one runs are compared
  bool boundaries = true;               ///< attention and positions stop where documents do
  int read_ahead_mb = 64;        ///< MiB of host memory of each rank for micro-batches that are read ahead
  bool other_tokenizer = false;  ///< token files may name another tokenizer than the weights' folder has
  std::uint64_t shuffle_seed =
      1;  ///< the order of samples is a function of (shuffle_seed, global sample index) alone
  bool operator==(const Data&) const = default;
};

/// [train]
struct Train {
  std::int64_t steps = 100;  ///< 0: as many as `epochs` make, which only the data say
  double epochs = 0;         ///< passes over the data, instead of steps; 0: not given
  int sequence = 256;        ///< tokens per sequence
  int global_batch = 8;      ///< sequences per optimizer step, over all ranks
  int micro_batch = 1;       ///< sequences that one rank computes at once; divides global_batch
  int lanes = 0;  ///< accumulation lanes (numerics rule 2); 0: one per micro-batch, which suits every
                  ///< layout. Fewer take fewer gradient sums. Results depend on it, and a run keeps it
  std::uint64_t seed = 1;  ///< of the initial weights
  /// What of a block's forward pass is computed again for the backward pass instead of being kept: nothing;
  /// norms and SwiGLU; those and attention; the whole block. Results do not depend on it.
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  Device device = Device::automatic;  ///< auto: a GPU where there is one that can be used
  bool deterministic =
      true;  ///< on a GPU: the same bits at every run; false: faster, and no two runs are the same
  double peak_tflops = 0;  ///< TFLOP/s of one rank's device in bf16, for the MFU; 0: of GPUs that are known
                           ///< by name (peak_flops_of), of others none
  bool operator==(const Train&) const = default;
};

/// Micro-batches of an optimizer step, over all ranks. What other tools call gradient accumulation steps is
/// this number over that of the ranks.
inline int micro_batches(const Train& t) { return t.global_batch / std::max(1, t.micro_batch); }

/// [eval]: loss on data.validation
struct Eval {
  int every = 0;           ///< optimizer steps; 0: never
  int samples = 64;        ///< windows of each file, drawn by a fixed key: the same at every evaluation
  int patience = 0;        ///< evaluations without a better loss after which the run stops; 0: it does not
  double min_delta = 0;    ///< by which a loss has to be better for `patience`, and more
  bool keep_best = false;  ///< a state that is the best so far is saved, and the best one stays
  bool operator==(const Eval&) const = default;
};

/// [precision]: how numbers are stored and sent; arithmetic is fp32. Master weights are fp32 always.
struct PrecisionPolicy {
  Precision parameters =
      Precision::automatic;  ///< gathered weights, activations and their gradients; auto: bf16 on GPUs, which
                             ///< compute in nothing else, and fp32 on CPUs (config::resolve)
  Precision reduce = Precision::fp32;   ///< a micro-batch's weight gradients on the wire inside a shard group
  Precision buffers = Precision::fp32;  ///< tables of the rotary embedding
  Precision moments = Precision::fp32;  ///< AdamW's, from step to step
  /// Operands of the blocks' linear layers: as `parameters`, or rounded to 8 bits for the product.
  Products products = Products::bf16;
  bool operator==(const PrecisionPolicy&) const = default;
};

/// [fp8]: how operands are scaled before they are rounded to 8 bits. Scales are powers of two.
struct Fp8 {
  /// delayed: by the largest element of the last `history` steps, known beforehand. current: by that of the
  /// tensor itself, which is read twice.
  Scaling scaling = Scaling::delayed;
  int history = 16;  ///< steps
  int margin = 0;    ///< delayed: powers of two kept free above the largest element
  bool operator==(const Fp8&) const = default;
};

/// [shard]
struct Shard {
  Strategy strategy = Strategy::hybrid_shard;
  int group = 0;  ///< ranks of a shard group under hybrid_shard and hfsdp; 0: the ranks of one node
  int prefetch_forward = 1,
      prefetch_backward = 1;  ///< sharding units gathered ahead of the one that is computed, 0 to 16
  int gathered_limit = 0;     ///< sharding units gathered but not yet used, at most; 0: the prefetch depth
  std::string keep_gathered = "none";    ///< blocks that stay gathered from the forward to the backward pass:
                                         ///< none, all, or numbers from 0: "0,3,5-7"
  bool keep_across_micro_steps = false;  ///< kept blocks stay gathered until the optimizer changes them, and
                                         ///< where all are kept so do 8-bit copies of them (keeps_copies)
  Offload offload = Offload::none;       ///< moments: they lie in host memory, and the GPU updates them there
  bool operator==(const Shard&) const = default;
};

constexpr int max_rank = 1024;  ///< of adapters

/// [lora]: low-rank adapters are trained instead of the model (config::Adapters)
struct Lora {
  int rank = 0;        ///< 0: none, the model itself is trained
  double alpha = 16;   ///< what an adapter adds is scaled by alpha / rank
  double dropout = 0;  ///< of the adapters' input, while training
  std::vector<std::string> targets = {"q_proj", "v_proj"};  ///< linear layers, by name
  std::string weights;  ///< what a run without a checkpoint begins with: a PEFT folder, a checkpoint or a run
                        ///< of adapters; "": A random, B zero
  Base base = Base::parameters;  ///< the blocks' linear layers: as [precision] parameters, or in 8 or 4 bits
  bool operator==(const Lora&) const = default;
};

/// [optim]: AdamW; learning rate: linear warmup, then `schedule` from lr to min_lr (optim/schedule.hpp)
struct Optim {
  double lr = 3e-4, min_lr = 3e-5;
  int warmup_steps = 10;
  double warmup_ratio = 0;  ///< part of train.steps, instead of warmup_steps; 0: not given
  Schedule schedule = Schedule::cosine;
  int decay_steps = 0;  ///< of wsd: length of the final decay; 0: a tenth of train.steps
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;        ///< of matrices; norm gains and biases have none unless a group says so
  double clip_norm = 1.0;           ///< global gradient norm; 0: no clipping
  std::vector<std::string> groups;  ///< "GLOB lr_scale=X weight_decay=Y", see optim_group.hpp
  bool operator==(const Optim&) const = default;
};

/// The steps of the warmup in a run of `steps`: a begun one counts, but for the rounding of the product.
inline std::int64_t warmup_steps_of(const Optim& o, std::int64_t steps) {
  constexpr double rounding = 1e-6;
  if (o.warmup_ratio <= 0) return o.warmup_steps;
  return static_cast<std::int64_t>(std::ceil(o.warmup_ratio * static_cast<double>(steps) - rounding));
}

/// The steps of wsd's final decay in a run of `steps`: at least one.
inline std::int64_t decay_steps_of(const Optim& o, std::int64_t steps) {
  return o.decay_steps > 0 ? o.decay_steps : std::max<std::int64_t>(1, steps / 10);
}

/// [guard]: what happens when the loss or the gradient norm of a step is not a number, or far above the usual
struct Guard {
  GuardAction on_nan = GuardAction::stop;  ///< not report: the state would be lost
  GuardAction on_spike =
      GuardAction::report;                  ///< skip: the step's samples; rollback: to the newest checkpoint,
                                            ///< and on from there with the samples behind these
  double loss_factor = 0, norm_factor = 0;  ///< a spike is above so many times the median; 0: none is
  int window = 64;                          ///< steps that the median is taken over
  int max_skips = 10;                       ///< skips and rollbacks of a run; one more ends it with exit 93
  bool operator==(const Guard&) const = default;
};

/// [trace]
struct Trace {
  std::int64_t first = 0, count = 0;  ///< steps [first, first + count) go to trace/ of the run directory
  bool flight_recorder = true;        ///< last collectives of each rank, in shared memory
  bool operator==(const Trace&) const = default;
};

/// [checkpoint]: three levels. Shared: the run directory. Local: the memory or disk of each node, which
/// outlives the process. Peer: the replica's local level, or a partner's copy where there is no replica.
struct Checkpoint {
  int every = 50;                         ///< steps between shared checkpoints; 0: only at the end
  Interval interval = Interval::fixed;    ///< auto: from measured cost and failure rate, `every` at first
  double max_overhead = 0.03;             ///< auto: saving may take this part of the time
  int keep = 3;                           ///< newest committed checkpoints to keep
  double archive_h = 0;                   ///< also keep the first checkpoint of every so many hours; 0: none
  int keep_files = 0;                     ///< the same as keep for those of another program; 0: all stay
  std::vector<std::string> files_in;      ///< folders in which these go with it, beside the run directory
  double check_files_gib = 4;             ///< before another program begins from a checkpoint of at most so
                                          ///< much, all of it is read; of a larger one sizes are compared
  WhenBusy when_busy = WhenBusy::wait;    ///< a save is due, and the one before it is still being written
  ReadBack read_back = ReadBack::sample;  ///< a writer reads so much of its file again before it votes yes
  int commit_s =
      120;  ///< votes of all ranks must be in so long after the first, else the checkpoint is dropped
  int drain_s = 25;           ///< a run that is told to end has so long for its last checkpoint
  int read_patience_s = 120;  ///< what cannot be read (a checkpoint at a restart, tokens) is asked for again
                              ///< so long; then exit 75
  /// Folder of the local level on every node. auto: /dev/shm under agents, none otherwise.
  std::string local = "auto";
  int local_every = 1;                   ///< steps between local snapshots
  Partner partner = Partner::automatic;  ///< auto: a copy on another node where no replica holds the same
  int partner_every = 1;                 ///< steps between partner copies, a multiple of local_every
  std::string network;  ///< device for state between nodes, as UCX names it; "": what the cluster file says
  bool operator==(const Checkpoint&) const = default;
};

/// Comparisons that must be exactly equal; a difference is silent data corruption (numerics rule 16). No bit
/// of the run depends on them.
struct Verify {
  int replicas_every = 100;  ///< steps between comparisons of the replicas' state; 0: never
  int micro_batch_every =
      100;  ///< steps between which one random micro-batch is computed again on another rank; 0: never
  bool operator==(const Verify&) const = default;
};
struct Drill {
  bool allowed = false;  ///< agents and ranks of this run break things when `holdfast drill` says so
  bool operator==(const Drill&) const = default;
};

struct RunConfig {
  Run run;
  Cluster cluster;
  Slurm slurm;
  Container container;
  Rank rank;
  Supervise supervise;
  Model model;
  Data data;
  Train train;
  Eval eval;
  PrecisionPolicy precision;
  Fp8 fp8;
  Shard shard;
  Lora lora;
  Optim optim;
  Guard guard;
  Checkpoint checkpoint;
  Verify verify;
  Drill drill;
  Trace trace;
  bool operator==(const RunConfig&) const = default;
};

}  // namespace holdfast::config
