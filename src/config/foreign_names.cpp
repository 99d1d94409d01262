#include "src/config/foreign_names.hpp"

#include <cctype>
#include <cstring>

namespace holdfast::config {
namespace {

std::string plain(const std::string& name) {
  std::string out;
  for (const unsigned char c : name)
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(c));
  return out;
}

}  // namespace

const std::vector<ForeignName>& foreign_names() {
  static const std::vector<ForeignName> names = {
      // Launchers
      {"nnodes", "torchrun", "cluster.nodes for the active nodes and cluster.spares for those that wait"},
      {"nprocpernode", "torchrun", "cluster.ranks_per_node"},
      {"maxrestarts", "torchrun", "supervise.max_restarts"},
      {"monitorinterval", "torchrun", "supervise.heartbeat_ms"},
      {"rdzvbackend", "torchrun", "nothing: agents find each other through the run directory"},
      {"rdzvendpoint", "torchrun", "nothing: agents find each other through the run directory"},
      {"rdzvid", "torchrun", "nothing: agents find each other through the run directory"},
      {"masteraddr", "torchrun", "nothing: ranks are told; other programs get MASTER_ADDR"},
      {"masterport", "torchrun", "supervise.port for the agents; other programs get MASTER_PORT"},
      {"minreplicas", "PyTorchJob", "supervise.min_nodes, in nodes"},
      {"maxreplicas", "PyTorchJob", "cluster.nodes + cluster.spares, in nodes"},
      {"backofflimit", "PyTorchJob", "supervise.max_restarts"},
      {"activedeadlineseconds", "PyTorchJob", "slurm.time"},
      {"workers", "PyTorchJob", "cluster.nodes"},
      {"minnodes", "a node range", "supervise.min_nodes"},
      {"maxnodes", "a node range", "cluster.nodes + cluster.spares"},
      {"ntaskspernode", "sbatch", "cluster.ranks_per_node"},
      {"jobname", "sbatch", "run.name"},
      {"rankheartbeattimeout", "NVRx", "supervise.hang_factor and supervise.hang_floor_s"},
      {"maxnoprogresscycles", "NVRx", "supervise.max_without_checkpoint"},
      // Batch and length
      {"globalbatchsize", "NeMo", "train.global_batch, in sequences"},
      {"trainbatchsize", "DeepSpeed", "train.global_batch, in sequences"},
      {"batchsize", "other trainers",
       "train.micro_batch for the sequences that a rank computes at once, and train.global_batch for those "
       "of a step"},
      {"localbatchsize", "torchtitan", "train.micro_batch"},
      {"microbatchsize", "NeMo", "train.micro_batch"},
      {"trainmicrobatchsizepergpu", "DeepSpeed", "train.micro_batch"},
      {"perdevicetrainbatchsize", "Hugging Face", "train.micro_batch"},
      {"perdeviceevalbatchsize", "Hugging Face", "train.micro_batch, also for eval"},
      {"gradientaccumulationsteps", "Hugging Face",
       "nothing: it follows from train.global_batch, train.micro_batch and the number of ranks"},
      {"accumulategradbatches", "Lightning",
       "nothing: it follows from train.global_batch, train.micro_batch and the number of ranks"},
      {"rampupbatchsize", "Megatron", "nothing: every step has train.global_batch sequences"},
      {"seqlen", "torchtitan", "train.sequence"},
      {"seqlength", "Megatron", "train.sequence"},
      {"encoderseqlength", "NeMo", "train.sequence"},
      {"maxseqlength", "Hugging Face", "train.sequence"},
      {"maxlength", "Hugging Face", "train.sequence"},
      {"sequencelen", "axolotl", "train.sequence"},
      {"samplepacking", "axolotl", "`holdfast data prepare --pack N` when token files are made"},
      // Length of a run
      {"maxsteps", "Hugging Face", "train.steps"},
      {"trainiters", "Megatron", "train.steps"},
      {"trainingsteps", "torchtitan", "train.steps"},
      {"numtrainepochs", "Hugging Face",
       "train.steps; one pass over the data is its tokens / (train.global_batch * train.sequence)"},
      {"numepochs", "axolotl",
       "train.steps; one pass over the data is its tokens / (train.global_batch * train.sequence)"},
      // Optimizer
      {"learningrate", "Hugging Face", "optim.lr"},
      {"lrschedulertype", "Hugging Face", "optim.schedule"},
      {"lrscheduler", "axolotl", "optim.schedule"},
      {"lrdecaystyle", "Megatron", "optim.schedule"},
      {"lrdecayiters", "Megatron",
       "optim.decay_steps with schedule = \"wsd\"; the others decay until train.steps"},
      {"warmupratio", "Hugging Face", "optim.warmup_steps, in steps"},
      {"lrwarmupiters", "Megatron", "optim.warmup_steps"},
      {"minlrratio", "torchtitan", "optim.min_lr, a rate"},
      {"adambeta1", "Hugging Face", "optim.beta1"},
      {"adambeta2", "Hugging Face", "optim.beta2"},
      {"betas", "DeepSpeed", "optim.beta1 and optim.beta2"},
      {"adamepsilon", "Hugging Face", "optim.epsilon"},
      {"adameps", "Megatron", "optim.epsilon"},
      {"eps", "DeepSpeed", "optim.epsilon"},
      {"maxgradnorm", "Hugging Face", "optim.clip_norm"},
      {"maxnorm", "torchtitan", "optim.clip_norm"},
      {"clipgrad", "Megatron", "optim.clip_norm"},
      {"gradientclipval", "NeMo", "optim.clip_norm"},
      {"gradientclipping", "DeepSpeed", "optim.clip_norm"},
      {"optimizer", "other trainers", "nothing: it is AdamW, with the settings of [optim]"},
      {"dataseed", "Hugging Face", "data.shuffle_seed"},
      // Types and memory
      {"dtype", "other trainers", "precision.parameters"},
      {"torchdtype", "Hugging Face", "precision.parameters"},
      {"bf16", "Hugging Face", "precision.parameters = \"bf16\""},
      {"fp16", "Hugging Face", "nothing: the 16-bit type is bf16, precision.parameters"},
      {"tf32", "Hugging Face", "nothing: products are of fp32, bf16 or, with precision.products, fp8"},
      {"fp8", "Megatron", "precision.products = \"fp8\""},
      {"mixedprecision", "other trainers", "precision.parameters; master weights are fp32"},
      {"mixedprecisionparam", "torchtitan", "precision.parameters"},
      {"mixedprecisionreduce", "torchtitan", "precision.reduce"},
      {"gradientcheckpointing", "Hugging Face", "train.activation_checkpointing"},
      {"activationcheckpoint", "torchtitan", "train.activation_checkpointing"},
      {"recomputegranularity", "Megatron", "train.activation_checkpointing"},
      {"recomputeactivations", "Megatron", "train.activation_checkpointing"},
      {"offloadoptimizer", "DeepSpeed", "shard.offload"},
      {"enablecpuoffload", "torchtitan", "shard.offload"},
      {"flashattention", "axolotl", "nothing: attention never keeps its scores"},
      {"attnimplementation", "Hugging Face", "nothing: the device has one attention"},
      {"torchcompile", "Hugging Face", "nothing: kernels are compiled with the program"},
      // Sharding
      {"zerostage", "DeepSpeed", "shard.strategy: \"shard_grad_op\" for stage 2, \"full_shard\" for stage 3"},
      {"zerooptimization", "DeepSpeed",
       "shard.strategy: \"shard_grad_op\" for stage 2, \"full_shard\" for stage 3"},
      {"fsdp", "Hugging Face", "shard.strategy"},
      {"fsdpconfig", "Hugging Face", "[shard]"},
      {"shardingstrategy", "PyTorch", "shard.strategy"},
      {"dataparallelsharddegree", "torchtitan", "shard.group"},
      {"dataparallelreplicatedegree", "torchtitan", "nothing: it is the number of ranks over shard.group"},
      {"usedistributedoptimizer", "Megatron", "shard.strategy"},
      {"tensormodelparallelsize", "NeMo",
       "nothing: there is no tensor parallelism; shard.strategy divides the state"},
      {"tensorparalleldegree", "torchtitan",
       "nothing: there is no tensor parallelism; shard.strategy divides the state"},
      {"pipelinemodelparallelsize", "NeMo",
       "nothing: there is no pipeline parallelism; shard.strategy divides the state"},
      {"pipelineparalleldegree", "torchtitan",
       "nothing: there is no pipeline parallelism; shard.strategy divides the state"},
      {"contextparallelsize", "NeMo",
       "nothing: there is no context parallelism; a rank computes whole sequences"},
      {"contextparalleldegree", "torchtitan",
       "nothing: there is no context parallelism; a rank computes whole sequences"},
      {"sequenceparallel", "Megatron",
       "nothing: there is no sequence parallelism; a rank computes whole sequences"},
      {"expertmodelparallelsize", "NeMo", "nothing: there are no experts"},
      // Model
      {"modelnameorpath", "Hugging Face", "model.file, and model.weights to begin with its weights"},
      {"basemodel", "axolotl", "model.file, and model.weights to begin with its weights"},
      {"hiddensize", "Hugging Face", "model.width, in the model file"},
      {"numlayers", "Megatron", "model.layers, in the model file"},
      {"numhiddenlayers", "Hugging Face", "model.layers, in the model file"},
      {"nlayers", "torchtitan", "model.layers, in the model file"},
      {"numattentionheads", "Hugging Face", "model.heads, in the model file"},
      {"nheads", "torchtitan", "model.heads, in the model file"},
      {"numkeyvalueheads", "Hugging Face", "model.kv_heads, in the model file"},
      {"numquerygroups", "Megatron", "model.kv_heads, in the model file"},
      {"nkvheads", "torchtitan", "model.kv_heads, in the model file"},
      {"intermediatesize", "Hugging Face", "model.ffn, in the model file"},
      {"ffnhiddensize", "Megatron", "model.ffn, in the model file"},
      {"vocabsize", "Hugging Face", "model.vocabulary, in the model file"},
      {"maxpositionembeddings", "Hugging Face", "model.max_sequence, in the model file"},
      {"rmsnormeps", "Hugging Face", "model.norm_epsilon, in the model file"},
      {"tiewordembeddings", "Hugging Face", "model.tied_embeddings, in the model file"},
      // Adapters
      {"lorar", "axolotl", "lora.rank"},
      {"loraalpha", "axolotl", "lora.alpha"},
      {"loradropout", "axolotl", "lora.dropout"},
      {"loratargetmodules", "axolotl", "lora.targets"},
      {"targetmodules", "PEFT", "lora.targets"},
      {"loadin8bit", "Hugging Face", "lora.base = \"int8\""},
      {"loadin4bit", "Hugging Face", "lora.base = \"nf4\""},
      // Data
      {"datasets", "axolotl",
       "data.tokens or data.mixture, of token files that `holdfast data prepare` makes"},
      {"dataset", "torchtitan",
       "data.tokens or data.mixture, of token files that `holdfast data prepare` makes"},
      {"datapath", "Megatron",
       "data.tokens or data.mixture, of token files that `holdfast data prepare` makes"},
      {"tokenizermodel", "Megatron",
       "nothing: `holdfast data prepare --tokenizer` makes token files with it"},
      {"tokenizerpath", "torchtitan",
       "nothing: `holdfast data prepare --tokenizer` makes token files with it"},
      {"dataloadernumworkers", "Hugging Face", "nothing: ranks map the token files"},
      {"numworkers", "Megatron", "nothing: ranks map the token files"},
      // Checkpoints, evaluation, records
      {"savesteps", "Hugging Face", "checkpoint.every"},
      {"saveinterval", "Megatron", "checkpoint.every"},
      {"checkpointinterval", "torchtitan", "checkpoint.every"},
      {"savetotallimit", "Hugging Face", "checkpoint.keep"},
      {"keeplatestk", "torchtitan", "checkpoint.keep"},
      {"asyncsave", "Megatron", "nothing: checkpoints are written beside the steps"},
      {"asyncmode", "torchtitan", "nothing: checkpoints are written beside the steps"},
      {"resumefromcheckpoint", "Hugging Face", "run.resume"},
      {"outputdir", "Hugging Face", "run.dir"},
      {"dumpfolder", "torchtitan", "run.dir"},
      {"evalsteps", "Hugging Face", "eval.every"},
      {"evalinterval", "Megatron", "eval.every"},
      {"evaliters", "Megatron", "eval.samples"},
      {"loggingsteps", "Hugging Face", "nothing: metrics.jsonl has a line per step"},
      {"loginterval", "Megatron", "nothing: metrics.jsonl has a line per step"},
      {"logfreq", "torchtitan", "nothing: metrics.jsonl has a line per step"},
      {"reportto", "Hugging Face", "nothing: metrics.jsonl has a line per step"},
      {"ddptimeout", "Hugging Face", "supervise.step_s, until the pace of a run is known"},
      {"commtimeout", "torchtitan", "supervise.step_s, until the pace of a run is known"},
  };
  return names;
}

std::string foreign_suggestion(const std::string& key) {
  for (const auto& known : foreign_names())
    if (plain(key) == known.name)
      return std::string(known.whose) + (known.whose[std::strlen(known.whose) - 1] == 's' ? "' " : "'s ") +
             key + " is here " + known.answer;
  return "";
}

}  // namespace holdfast::config
