// There is one table per struct, with a row per setting: key, member, meaning, limits. Table::insert()
// derives the rest of a Setting from the member's type: its kind, the choices of an enum, the upper limit of
// an int, get() and set(). load.cpp reads and writes files by these tables, and `holdfast config keys` lists
// that of a run.
//
// A new row needs a member of the struct, in the order in which files are written, beside the rows of the
// same table: to_toml() writes a header wherever the table's name changes. An enum's names are in
// choices.cpp. set() may assume a value that fit() has let through, and checks nothing itself.
#include "src/config/bind.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace holdfast::config {
namespace {

template <class Field>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<Field, bool>) return Kind::boolean;
  if constexpr (std::is_same_v<Field, std::string>) return Kind::text;
  if constexpr (std::is_enum_v<Field>) return Kind::choice;
  if constexpr (std::is_same_v<Field, std::vector<std::string>>) return Kind::list;
  if constexpr (std::is_same_v<Field, std::vector<double>>) return Kind::numbers;
  if constexpr (std::is_floating_point_v<Field>) return Kind::number;
  return Kind::integer;
}

template <class Field>
Value to_value(const Field& field) {
  if constexpr (std::is_enum_v<Field>)
    return name_of(field);
  else if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>)
    return static_cast<std::int64_t>(field);
  else
    return field;
}

template <class Field>
void from_value(Field& field, const Value& value) {
  if constexpr (std::is_enum_v<Field>) {
    field = *choice_called<Field>(std::get<std::string>(value));
  } else if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
    field = static_cast<Field>(std::get<std::int64_t>(value));
  } else {
    field = std::get<Field>(value);
  }
}

struct Allowed {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
  bool lone = false;
};
Allowed at_least(double least) { return {least}; }
Allowed between(double least, double most) { return {least, most}; }
Allowed one_or_several() { return {.lone = true}; }
Allowed one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }

/// Collects lines `add("table.key", path to the field..., "meaning", allowed)`.
template <class Struct>
class Table {
 public:
  template <class Part, class Field>
  void add(std::string_view name, Part Struct::*part, Field Part::*field, std::string help,
           Allowed allowed = {}) {
    insert<Field>(
        name, std::move(help), std::move(allowed), [=](auto& s) -> auto& { return s.*part.*field; });
  }
  template <class Field>
  void add(std::string_view name, Field Struct::*field, std::string help, Allowed allowed = {}) {
    insert<Field>(
        name, std::move(help), std::move(allowed), [=](auto& s) -> auto& { return s.*field; });
  }
  std::vector<Setting<Struct>> settings;

 private:
  template <class Field, class Reach>
  void insert(std::string_view name, std::string help, Allowed allowed, Reach reach) {
    const auto dot = name.find('.');
    Setting<Struct> s;
    s.table = name.substr(0, dot);
    s.key = name.substr(dot + 1);
    s.help = std::move(help);
    s.kind = allowed.choices.empty() ? kind_of<Field>() : Kind::choice;
    s.least = allowed.least;
    s.most = allowed.most;
    s.choices = std::move(allowed.choices);
    s.lone = allowed.lone;
    if constexpr (std::is_enum_v<Field>)
      if (s.choices.empty()) s.choices = names_of<Field>();
    if constexpr (std::is_same_v<Field, int>)
      s.most = std::min(s.most, double{std::numeric_limits<int>::max()});
    s.get = [reach](const Struct& from) { return to_value<Field>(reach(from)); };
    s.set = [reach](Struct& to, const Value& value) { from_value<Field>(reach(to), value); };
    settings.push_back(std::move(s));
  }
};

std::vector<Setting<RunConfig>> make_run_settings() {
  using C = RunConfig;
  Table<C> t;
  t.add("run.name", &C::run, &Run::name, "name of the job, shown by squeue; no control characters");
  t.add("run.dir", &C::run, &Run::dir, "run directory on the shared file system; empty: runs/NAME");
  t.add("run.resume", &C::run, &Run::resume,
        "auto (newest verified checkpoint), none, or a checkpoint's path");
  t.add("run.other_numerics", &C::run, &Run::other_numerics, "a checkpoint of another numerics identity",
        one_of({"refuse", "continue"}));

  t.add("cluster.file", &C::cluster, &Cluster::file,
        "a name in configs/clusters, or a path to a cluster file");
  t.add("cluster.nodes", &C::cluster, &Cluster::nodes, "active nodes", between(1, 65536));
  t.add("cluster.spares", &C::cluster, &Cluster::spares, "further nodes, kept to replace failed ones",
        between(0, 65536));
  t.add("cluster.ranks_per_node", &C::cluster, &Cluster::ranks_per_node, "0: one per GPU of the cluster file",
        between(0, 1024));

  t.add("slurm.partition", &C::slurm, &Slurm::partition, "as sbatch --partition");
  t.add("slurm.account", &C::slurm, &Slurm::account, "as sbatch --account");
  t.add("slurm.qos", &C::slurm, &Slurm::qos, "as sbatch --qos");
  t.add("slurm.reservation", &C::slurm, &Slurm::reservation, "as sbatch --reservation");
  t.add("slurm.time", &C::slurm, &Slurm::time, "as sbatch --time, D-HH:MM:SS");
  t.add("slurm.constraint", &C::slurm, &Slurm::constraint, "as sbatch --constraint");
  t.add("slurm.bundle", &C::slurm, &Slurm::bundle, "bundle to bring to nodes that have nothing of Holdfast");
  t.add("slurm.comment_s", &C::slurm, &Slurm::comment_s,
        "s between updates of the job's comment in SLURM, which says step, loss and state; 0: none",
        between(0, 86400));
  t.add("slurm.extra", &C::slurm, &Slurm::extra, "further sbatch arguments, one per element");

  t.add("container.image", &C::container, &Container::image, "image in which the agents and ranks run");
  t.add("container.runtime", &C::container, &Container::runtime, "what puts the agents into the image");
  t.add("container.mounts", &C::container, &Container::mounts,
        "what else the image shows of the node, SOURCE[:TARGET[:FLAGS]]");
  t.add("container.writable", &C::container, &Container::writable, "the image's own folders can be written");
  t.add("container.workdir", &C::container, &Container::workdir,
        "working directory in the image; empty: the run directory");
  t.add("container.extra", &C::container, &Container::extra,
        "further options of srun (pyxis) or of apptainer exec, one per element");

  t.add("rank.command", &C::rank, &Rank::command, "program of a rank and its arguments; no shell reads it");
  t.add("rank.launch", &C::rank, &Rank::launch,
        "do agents serve PMIx to it? mpi: yes; direct: no; auto: if it is holdfast-train",
        one_of({"auto", "mpi", "direct"}));
  t.add(
      "rank.kind", &C::rank, &Rank::kind,
      "client: it uses the client; sigterm: it saves on SIGTERM and ends; plain: neither; auto: plain, until "
      "it uses the client");
  t.add("rank.environment", &C::rank, &Rank::environment, "\"NAME=value\" added for every rank");
  t.add("rank.warm", &C::rank, &Rank::warm,
        "modules that are imported before a Python program needs them, in interpreters that wait");
  t.add(
      "rank.buffers_gib", &C::rank, &Rank::buffers_gib,
      "that a rank of another program keeps in snapshot buffers: plan refuses what has no room; 0: not known",
      at_least(0));
  t.add("rank.directory", &C::rank, &Rank::directory,
        "where ranks work; empty: other programs than holdfast-train where the run was submitted");

  t.add("supervise.heartbeat_ms", &C::supervise, &Supervise::heartbeat_ms,
        "agents and ranks report this often", at_least(10));
  t.add("supervise.node_silence_ms", &C::supervise, &Supervise::node_silence_ms,
        "a node whose agent is silent for so long is lost", at_least(1));
  t.add("supervise.leader_silence_ms", &C::supervise, &Supervise::leader_silence_ms,
        "when the leader is silent for so long, another agent is elected", at_least(1));
  t.add("supervise.start_s", &C::supervise, &Supervise::start_s,
        "s from the start of an attempt in which all ranks must connect, and for which what a program has "
        "started with before may be away",
        at_least(1));
  t.add("supervise.step_s", &C::supervise, &Supervise::step_s, "a rank without progress for so long is hung",
        at_least(1));
  t.add("supervise.hang_factor", &C::supervise, &Supervise::hang_factor,
        "a rank is hung when a phase takes this many times as long as so far, or as planned", at_least(1));
  t.add("supervise.hang_floor_s", &C::supervise, &Supervise::hang_floor_s, "... but not before so long",
        at_least(1));
  t.add("supervise.hang_outside_s", &C::supervise, &Supervise::hang_outside_s,
        "the same for programs that do not report: without any sign of life; 0: never", at_least(0));
  t.add("supervise.straggler_ratio", &C::supervise, &Supervise::straggler_ratio,
        "compute time over the ranks' median that makes a straggler", at_least(1));
  t.add("supervise.on_straggler", &C::supervise, &Supervise::on_straggler,
        "report it, or substitute its node");
  t.add("supervise.stop_s", &C::supervise, &Supervise::stop_s,
        "ranks asked to end get so long before SIGKILL", at_least(0));
  t.add("supervise.clear_s", &C::supervise, &Supervise::clear_s,
        "a node that cannot end killed ranks for so long is lost, if most others can", at_least(1));
  t.add("supervise.max_restarts", &C::supervise, &Supervise::max_restarts,
        "attempts that may end by a fault of the program between two checkpoints", at_least(0));
  t.add("supervise.max_same_step", &C::supervise, &Supervise::max_same_step,
        "attempts in a row that may end by a fault of the program at one step with one error", at_least(1));
  t.add("supervise.max_without_checkpoint", &C::supervise, &Supervise::max_without_checkpoint,
        "attempts in a row that may end by a fault of the program without a new step or checkpoint",
        at_least(1));
  t.add("supervise.infrastructure_s", &C::supervise, &Supervise::infrastructure_s,
        "the infrastructure may end attempts for so long; then the job goes back into the queue",
        at_least(0));
  t.add("supervise.assumed_progress_s", &C::supervise, &Supervise::assumed_progress_s,
        "an attempt of a program that reports no progress, once it has run so long, counts as progress",
        at_least(0));
  t.add("supervise.max_node_failures", &C::supervise, &Supervise::max_node_failures,
        "failures of a node after which it is not used again", at_least(1));
  t.add("supervise.max_evictions", &C::supervise, &Supervise::max_evictions,
        "nodes that one sign of broken hardware may evict in a job; 0: half of the spares", at_least(0));
  t.add("supervise.min_nodes", &C::supervise, &Supervise::min_nodes,
        "active nodes to which the run may shrink; 0: it never does", at_least(0));
  t.add("supervise.when_short", &C::supervise, &Supervise::when_short,
        "what to do when spares have run out: auto, shrink, requeue or stop");
  t.add("supervise.check_spares_s", &C::supervise, &Supervise::check_spares_s,
        "seconds between checks of idle spares; 0: no node is checked", at_least(0));
  t.add("supervise.log_attempts", &C::supervise, &Supervise::log_attempts,
        "the logs of so many last attempts are kept, beside those of the first; 0: of all", at_least(0));
  t.add("supervise.ledger", &C::supervise, &Supervise::ledger,
        "folder where failures of nodes are kept across jobs; empty: the cluster file's, or none");
  t.add("supervise.port", &C::supervise, &Supervise::port,
        "the first of 8 TCP ports of which an agent takes one that is free, and its mover another; 0: from "
        "the job id",
        between(0, 65535));

  t.add("model.file", &C::model, &Model::file,
        "a name in configs/models, a model file, or a Hugging Face folder");
  t.add("model.weights", &C::model, &Model::weights,
        "weights to begin with: a Hugging Face folder, safetensors, or a checkpoint");

  t.add("data.tokens", &C::data, &Data::tokens, "token file made by `holdfast data prepare`");
  t.add("data.mixture", &C::data, &Data::mixture,
        "instead: \"PATH WEIGHT\" for each of several token files that share the samples");
  t.add("data.boundaries", &C::data, &Data::boundaries, "attention and positions stop where documents do");
  t.add("data.other_tokenizer", &C::data, &Data::other_tokenizer,
        "token files may be made by another tokenizer than the one beside model.weights");
  t.add("data.validation", &C::data, &Data::validation,
        "token file of held-out text, or a list of several; the first one's loss is the run's",
        one_or_several());
  t.add("data.read_ahead_mb", &C::data, &Data::read_ahead_mb,
        "MiB of each rank's memory for micro-batches that are read ahead", at_least(1));
  t.add("data.shuffle_seed", &C::data, &Data::shuffle_seed, "fixes the order of the samples", at_least(0));

  t.add("train.steps", &C::train, &Train::steps, "optimizer steps", at_least(1));
  t.add("train.epochs", &C::train, &Train::epochs,
        "instead of steps: passes over the data, 0.5 for a half; 0: not given", between(0, 1e6));
  t.add("train.sequence", &C::train, &Train::sequence, "tokens per sequence", at_least(1));
  t.add("train.global_batch", &C::train, &Train::global_batch, "sequences per step, over all ranks",
        at_least(1));
  t.add("train.micro_batch", &C::train, &Train::micro_batch,
        "sequences that a rank computes at once; divides global_batch", at_least(1));
  t.add("train.lanes", &C::train, &Train::lanes,
        "accumulation lanes (results depend on it); 0: one per micro-batch", at_least(0));
  t.add("train.seed", &C::train, &Train::seed, "of the initial weights", at_least(0));

  t.add("train.activation_checkpointing", &C::train, &Train::activation_checkpointing,
        "what the backward pass recomputes");
  t.add("train.device", &C::train, &Train::device, "auto, cpu or cuda");
  t.add("train.deterministic", &C::train, &Train::deterministic, "the same bits at every run on a GPU");
  t.add(
      "train.peak_tflops", &C::train, &Train::peak_tflops,
      "TFLOP/s of one rank's device in bf16, for the MFU in the metrics; 0: as known of the GPU by its name",
      at_least(0));

  t.add("eval.every", &C::eval, &Eval::every, "steps between losses on data.validation; 0: never",
        at_least(0));
  t.add("eval.samples", &C::eval, &Eval::samples,
        "samples of each of its files, from all over it, always the same ones", at_least(1));
  t.add("eval.patience", &C::eval, &Eval::patience,
        "the run stops early after so many evaluations without a better loss; 0: it does not", at_least(0));
  t.add("eval.min_delta", &C::eval, &Eval::min_delta, "of patience: a loss is better by more than so much",
        at_least(0));
  t.add("eval.keep_best", &C::eval, &Eval::keep_best,
        "a state whose loss is the best so far is saved, and the best one is kept");

  const std::vector<std::string> types = {"fp32", "bf16"};
  t.add("precision.parameters", &C::precision, &PrecisionPolicy::parameters,
        "gathered weights, activations and their gradients; auto: bf16 on GPUs, else fp32");
  t.add("precision.reduce", &C::precision, &PrecisionPolicy::reduce, "gradients sent inside a shard group",
        one_of(types));
  t.add("precision.buffers", &C::precision, &PrecisionPolicy::buffers, "tables of the rotary embedding",
        one_of(types));
  t.add("precision.moments", &C::precision, &PrecisionPolicy::moments, "AdamW's moments", one_of(types));
  t.add("precision.products", &C::precision, &PrecisionPolicy::products,
        "operands of the blocks' linear layers; bf16: as parameters");

  t.add("fp8.scaling", &C::fp8, &Fp8::scaling, "by the largest element of the last steps, or of the tensor");
  t.add("fp8.history", &C::fp8, &Fp8::history, "steps that delayed scaling looks back", between(1, 1024));
  t.add("fp8.margin", &C::fp8, &Fp8::margin, "powers of two that delayed scaling keeps free", between(0, 8));

  t.add("shard.strategy", &C::shard, &Shard::strategy, "who holds which part of the state");
  t.add("shard.group", &C::shard, &Shard::group,
        "ranks of a hybrid_shard or hfsdp group; 0: those of one node", at_least(0));
  t.add("shard.prefetch_forward", &C::shard, &Shard::prefetch_forward,
        "sharding units gathered ahead in the forward pass", between(0, 16));
  t.add("shard.prefetch_backward", &C::shard, &Shard::prefetch_backward,
        "sharding units gathered ahead in the backward pass", between(0, 16));
  t.add("shard.gathered_limit", &C::shard, &Shard::gathered_limit,
        "sharding units gathered but not yet used; 0: the prefetch depth", between(0, 16));
  t.add("shard.keep_gathered", &C::shard, &Shard::keep_gathered,
        "blocks kept from forward to backward: none, all, or \"0,3,5-7\"");
  t.add("shard.keep_across_micro_steps", &C::shard, &Shard::keep_across_micro_steps,
        "kept blocks stay until the optimizer step");
  t.add("shard.offload", &C::shard, &Shard::offload, "what lies in host memory while a GPU trains");

  t.add("lora.rank", &C::lora, &Lora::rank,
        "train adapters of this rank instead of the model; 0: the model itself", between(0, max_rank));
  t.add("lora.alpha", &C::lora, &Lora::alpha, "what an adapter adds is scaled by alpha / rank");
  t.add("lora.dropout", &C::lora, &Lora::dropout,
        "probability with which an element of an adapter's input is left out, below 1", between(0, 1));
  t.add("lora.targets", &C::lora, &Lora::targets,
        "linear layers with adapters: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  t.add("lora.weights", &C::lora, &Lora::weights,
        "adapters to begin with: a folder of PEFT, a checkpoint or a run; empty: as the seed says");
  t.add("lora.base", &C::lora, &Lora::base,
        "the blocks' linear layers are kept as precision.parameters, or in 8 or 4 bits: less memory, other "
        "bits");

  t.add("optim.lr", &C::optim, &Optim::lr, "highest learning rate", at_least(0));
  t.add("optim.min_lr", &C::optim, &Optim::min_lr, "learning rate at the last step", at_least(0));
  t.add("optim.warmup_steps", &C::optim, &Optim::warmup_steps, "steps of linear warmup", at_least(0));
  t.add("optim.warmup_ratio", &C::optim, &Optim::warmup_ratio,
        "instead of warmup_steps: part of the run's steps; 0: not given", between(0, 1));
  t.add("optim.schedule", &C::optim, &Optim::schedule, "of the learning rate after the warmup");
  t.add("optim.decay_steps", &C::optim, &Optim::decay_steps, "of wsd, at the end; 0: a tenth of the steps",
        at_least(0));
  t.add("optim.beta1", &C::optim, &Optim::beta1, "AdamW, first moment", between(0, 1));
  t.add("optim.beta2", &C::optim, &Optim::beta2, "AdamW, second moment", between(0, 1));
  t.add("optim.epsilon", &C::optim, &Optim::epsilon, "AdamW, added to the root", at_least(0));
  t.add("optim.weight_decay", &C::optim, &Optim::weight_decay, "of matrices; gains and biases have none",
        at_least(0));
  t.add("optim.clip_norm", &C::optim, &Optim::clip_norm, "largest gradient norm; 0: no clipping",
        at_least(0));
  t.add("optim.groups", &C::optim, &Optim::groups,
        "\"GLOB lr_scale=X weight_decay=Y\"; the first match counts");

  t.add("guard.on_nan", &C::guard, &Guard::on_nan, "loss or gradient norm is not a number",
        one_of({"stop", "skip", "rollback"}));
  t.add("guard.on_spike", &C::guard, &Guard::on_spike, "loss or gradient norm is far above the median");
  t.add("guard.loss_factor", &C::guard, &Guard::loss_factor, "times the median is a spike; 0: none is",
        at_least(0));
  t.add("guard.norm_factor", &C::guard, &Guard::norm_factor, "times the median is a spike; 0: none is",
        at_least(0));
  t.add("guard.window", &C::guard, &Guard::window, "steps of the median", between(4, 128));
  t.add("guard.max_skips", &C::guard, &Guard::max_skips, "skips and rollbacks of a run; then it ends",
        at_least(0));

  t.add("checkpoint.every", &C::checkpoint, &Checkpoint::every,
        "steps between checkpoints; 0: only at the end", at_least(0));
  t.add("checkpoint.interval", &C::checkpoint, &Checkpoint::interval,
        "auto: from measured cost and failure rate");
  t.add("checkpoint.max_overhead", &C::checkpoint, &Checkpoint::max_overhead,
        "auto: part of the time that saving may take", between(0.0001, 1));
  t.add("checkpoint.keep", &C::checkpoint, &Checkpoint::keep, "newest checkpoints that stay", at_least(1));
  t.add("checkpoint.archive_h", &C::checkpoint, &Checkpoint::archive_h,
        "the first checkpoint of every so many hours stays too; 0: none", at_least(0));
  t.add("checkpoint.keep_files", &C::checkpoint, &Checkpoint::keep_files,
        "newest checkpoints of another program's files that stay; 0: all", at_least(0));
  t.add("checkpoint.files_in", &C::checkpoint, &Checkpoint::files_in,
        "folders in which their files are removed with them, beside the run directory");
  t.add("checkpoint.check_files_gib", &C::checkpoint, &Checkpoint::check_files_gib,
        "another program's checkpoint of at most so much is read whole before it begins from it",
        at_least(0));
  t.add("checkpoint.when_busy", &C::checkpoint, &Checkpoint::when_busy,
        "the save before is still being written: wait, or skip this one");
  t.add("checkpoint.read_back", &C::checkpoint, &Checkpoint::read_back,
        "how much of its file a writer reads again before it votes");
  t.add("checkpoint.commit_s", &C::checkpoint, &Checkpoint::commit_s,
        "s in which all votes must follow the first, else the checkpoint is dropped", at_least(1));
  t.add("checkpoint.drain_s", &C::checkpoint, &Checkpoint::drain_s,
        "time for the last checkpoint of a run that is told to end", at_least(1));
  t.add("checkpoint.read_patience_s", &C::checkpoint, &Checkpoint::read_patience_s,
        "a checkpoint or token file that cannot be read is tried again so long; then the run ends with 75",
        at_least(0));
  t.add("checkpoint.local", &C::checkpoint, &Checkpoint::local,
        "folder of the local level; auto: /dev/shm under agents; none");
  t.add("checkpoint.local_every", &C::checkpoint, &Checkpoint::local_every, "steps between local snapshots",
        at_least(1));
  t.add("checkpoint.partner", &C::checkpoint, &Checkpoint::partner,
        "auto: a copy on another node where there is no replica");
  t.add("checkpoint.partner_every", &C::checkpoint, &Checkpoint::partner_every,
        "steps between partner copies, a multiple of local_every", at_least(1));
  t.add("checkpoint.network", &C::checkpoint, &Checkpoint::network,
        "device for state between nodes; empty: the cluster file's");

  t.add("verify.replicas_every", &C::verify, &Verify::replicas_every,
        "steps between comparisons of the replicas' state; 0: never", at_least(0));
  t.add("verify.micro_batch_every", &C::verify, &Verify::micro_batch_every,
        "steps between which a random micro-batch is computed on two ranks; 0: never", at_least(0));
  t.add("drill.allowed", &C::drill, &Drill::allowed,
        "agents and ranks break things when `holdfast drill` says so");

  t.add("trace.first", &C::trace, &Trace::first, "first step that is traced", at_least(0));
  t.add("trace.count", &C::trace, &Trace::count, "steps that are traced, into trace/ of the run directory",
        at_least(0));
  t.add("trace.flight_recorder", &C::trace, &Trace::flight_recorder,
        "last collectives of each rank, in shared memory");
  return std::move(t.settings);
}

std::vector<Setting<ModelShape>> make_model_settings() {
  using M = ModelShape;
  Table<M> t;
  t.add("model.name", &M::name, "what checkpoints and reports call it");
  t.add("model.vocabulary", &M::vocabulary, "tokens", at_least(1));
  t.add("model.width", &M::width, "hidden size", at_least(1));
  t.add("model.layers", &M::layers, "transformer blocks", at_least(1));
  t.add("model.heads", &M::heads, "query heads", at_least(1));
  t.add("model.kv_heads", &M::kv_heads, "key and value heads; divides heads", at_least(1));
  t.add("model.head_dim", &M::head_dim, "size of a head; 0: width / heads", at_least(0));
  t.add("model.ffn", &M::ffn, "inner size of SwiGLU", at_least(1));
  t.add("model.max_sequence", &M::max_sequence, "longest sequence", at_least(1));
  t.add("model.rope_theta", &M::rope_theta, "base of the rotary frequencies", at_least(1));
  t.add("model.rope_type", &M::rope_type, "how wavelengths are stretched, as Hugging Face names it");
  t.add("model.rope_scaling_factor", &M::rope_scaling_factor, "stretches long wavelengths; 1: none",
        at_least(1));
  t.add("model.rope_low_frequency", &M::rope_low_frequency, "fewer turns than this: stretched", at_least(0));
  t.add("model.rope_high_frequency", &M::rope_high_frequency, "more turns than this: kept", at_least(0));
  t.add("model.rope_original_sequence", &M::rope_original_sequence, "in which turns are counted",
        at_least(1));
  t.add("model.rope_magnitude", &M::rope_magnitude, "factor of sines and cosines; YaRN's attention_factor",
        at_least(0));
  t.add("model.rope_short_factors", &M::rope_short_factors,
        "of longrope: what each frequency is divided by, up to rope_original_sequence");
  t.add("model.rope_long_factors", &M::rope_long_factors,
        "of longrope: the same for longer sequences, which are not computed; for exports");
  t.add("model.rotary_dim", &M::rotary_dim, "elements of a head that are rotated, the first ones; 0: all",
        at_least(0));
  t.add("model.nope_every", &M::nope_every, "the last of so many blocks has no rotary positions; 0: all have",
        at_least(0));
  t.add("model.window", &M::window,
        "tokens that a token attends to, with itself, in blocks with a window; 0: no block has one",
        at_least(0));
  t.add("model.full_every", &M::full_every, "the last of so many blocks has no window; 0: all have one",
        at_least(0));
  t.add("model.window_rope_theta", &M::window_rope_theta,
        "rope_theta in blocks with a window, where nothing is stretched; 0: as in all blocks", at_least(0));
  t.add("model.norm_epsilon", &M::norm_epsilon, "of RMSNorm", at_least(0));
  t.add("model.tied_embeddings", &M::tied_embeddings, "head and embedding are one tensor");
  t.add("model.qkv_bias", &M::qkv_bias, "q_proj, k_proj and v_proj have biases");
  t.add("model.o_bias", &M::o_bias, "o_proj has a bias");
  t.add("model.mlp_bias", &M::mlp_bias, "gate_proj, up_proj and down_proj have biases");
  t.add("model.qk_norm", &M::qk_norm, "RMSNorm of each head of queries and keys, before rope");
  t.add("model.qk_norm_whole", &M::qk_norm_whole, "these norms are over all heads at once; needs qk_norm");
  t.add("model.norm_after", &M::norm_after, "norms come behind attention and MLP, not before");
  t.add("model.fused", &M::fused, "q, k and v are one tensor, qkv_proj; gate and up one, gate_up_proj");
  t.add("model.embedding_multiplier", &M::embedding_multiplier, "factor of embeddings", at_least(0));
  t.add("model.attention_multiplier", &M::attention_multiplier,
        "factor of attention's scores; 0: one by the square root of a head's size", at_least(0));
  t.add("model.residual_multiplier", &M::residual_multiplier,
        "factor of what attention and MLP add to the residual", at_least(0));
  t.add("model.logits_scaling", &M::logits_scaling, "logits are divided by it", at_least(0));
  return std::move(t.settings);
}

std::vector<Setting<AdapterFacts>> make_adapter_settings() {
  using F = AdapterFacts;
  Table<F> t;
  t.add("adapters.rank", &F::lora, &Lora::rank, "of the adapters", between(1, max_rank));
  t.add("adapters.alpha", &F::lora, &Lora::alpha, "what an adapter adds is scaled by alpha / rank");
  t.add("adapters.dropout", &F::lora, &Lora::dropout, "of their input, while training", between(0, 1));
  t.add("adapters.targets", &F::lora, &Lora::targets, "linear layers that have them");
  t.add("adapters.base", &F::base, "weights that they sit beside; empty: drawn from the seed");
  t.add("adapters.base_digest", &F::base_digest, "of those weights");
  return std::move(t.settings);
}

std::vector<Setting<ClusterFacts>> make_cluster_settings() {
  using F = ClusterFacts;
  Table<F> t;
  t.add("cluster.name", &F::name, "what plans call it");
  t.add("cluster.description", &F::description, "one line for people");
  t.add("cluster.gpu", &F::gpu, "GPU model, or none: ranks are CPU processes");
  t.add("cluster.gpus_per_node", &F::gpus_per_node, "GPUs of a node; without GPUs: ranks it takes",
        between(1, 1024));
  t.add("cluster.gpu_memory_bytes", &F::gpu_memory_bytes,
        "memory of one GPU; without GPUs: a rank's share; 0: unknown", at_least(0));
  t.add("cluster.cpus_per_node", &F::cpus_per_node, "cores of a node", at_least(1));
  t.add("cluster.node_memory_bytes", &F::node_memory_bytes, "host memory of a node; 0: unknown", at_least(0));
  t.add("cluster.node_shm_bytes", &F::node_shm_bytes, "size of /dev/shm of a node; 0: unknown", at_least(0));
  t.add("cluster.nic_bytes_s", &F::nic_bytes_s,
        "bandwidth of one GPU's NIC, bytes per second in one direction; 0: unknown", at_least(0));
  t.add("cluster.control_interface", &F::control_interface,
        "network interface of MPI over TCP, and of state without a NIC");
  t.add("cluster.environment", &F::environment, "\"NAME=value\" every rank gets");
  t.add("cluster.ledger", &F::ledger, "folder where failures of nodes are kept across jobs; empty: none");
  t.add("cluster.gpu_job_mapping", &F::gpu_job_mapping,
        "folder for dcgm-exporter's --hpc-job-mapping-dir, on each node; empty: none");
  t.add("cluster.node_mttf_hours", &F::node_mttf_hours, "mean time to failure of one node; 0: unknown",
        at_least(0));
  t.add("storage.read_bytes_s", &F::storage_read_bytes_s, "whole file system, bytes per second; 0: unknown",
        at_least(0));
  t.add("storage.write_bytes_s", &F::storage_write_bytes_s, "whole file system, bytes per second; 0: unknown",
        at_least(0));
  t.add("storage.shared", &F::shared,
        "folders that all nodes and the machine of `submit` see; none: not known");
  return std::move(t.settings);
}

std::vector<Setting<ScalableUnit>> make_scalable_unit_settings() {
  Table<ScalableUnit> t;
  t.add("unit.name", &ScalableUnit::name, "for example su1");
  t.add("unit.nodes", &ScalableUnit::nodes, "hostlist, for example dgx[001-032]");
  return std::move(t.settings);
}

std::vector<Setting<GpuFacts>> make_gpu_settings() {
  Table<GpuFacts> t;
  t.add("gpu.gpu", &GpuFacts::gpu, "index on the node", at_least(0));
  t.add("gpu.nic", &GpuFacts::nic, "nearest RDMA device; empty: none");
  t.add("gpu.netdev", &GpuFacts::netdev, "its network interface");
  t.add("gpu.numa", &GpuFacts::numa, "NUMA node of both", at_least(0));
  t.add("gpu.rail", &GpuFacts::rail, "leaf switch of the scalable unit that the NIC hangs on", at_least(0));
  return std::move(t.settings);
}

}  // namespace

const std::vector<Setting<RunConfig>>& run_settings() {
  static const auto settings = make_run_settings();
  return settings;
}
const std::vector<Setting<ModelShape>>& model_settings() {
  static const auto settings = make_model_settings();
  return settings;
}
const std::vector<Setting<ClusterFacts>>& cluster_settings() {
  static const auto settings = make_cluster_settings();
  return settings;
}
const std::vector<Setting<AdapterFacts>>& adapter_settings() {
  static const auto settings = make_adapter_settings();
  return settings;
}
const std::vector<Setting<ScalableUnit>>& scalable_unit_settings() {
  static const auto settings = make_scalable_unit_settings();
  return settings;
}
const std::vector<Setting<GpuFacts>>& gpu_settings() {
  static const auto settings = make_gpu_settings();
  return settings;
}

}  // namespace holdfast::config
