#pragma once
// From files and flags to settings. Strict: an unknown key is an Error naming the nearest known one, with
// file and line.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/config/adapters.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

struct Loaded {
  RunConfig config;
  /// For every key ("train.steps"): "default", "job.toml:12", "environment HOLDFAST_SET_..." or "flag".
  std::map<std::string, std::string> origin;
};

/// Reads a job file; `sets` are "table.key=value" from --set, value in TOML spelling (a bare word is taken as
/// a string). Precedence: flag, environment (HOLDFAST_SET_TRAIN__STEPS for train.steps), file, default. A
/// file that says `resolved = true`, as `to_toml` writes it, is not changed by the environment. `file` may be
/// a name in configs/jobs. Throws Error (usage).
Loaded load(const std::filesystem::path& file, const std::vector<std::string>& sets = {});
/// The same without a file.
Loaded load_defaults(const std::vector<std::string>& sets);

/// `name_or_path`: a path when it contains '/' or ends in .toml, else a name in configs/models
/// (configs/clusters), which is looked for beside the program's installation or build tree. A model's path
/// may also be a Hugging Face folder or its config.json (hf_config.hpp).
ModelShape load_model(const std::string& name_or_path);
/// The text of a model file, as checkpoints keep it, with its adapters; `name` is for messages.
ModelShape parse_model(const std::string& toml, const std::string& name);
/// Its table [adapters], if it has one.
std::optional<AdapterFacts> parse_adapters(const std::string& toml, const std::string& name);
ClusterFacts load_cluster(const std::string& name_or_path);
/// The file such a name stands for.
std::filesystem::path find_config(const std::string& kind, const std::string& name_or_path);
/// The names in configs/KIND ("models", "clusters", "jobs", "drills"), sorted.
std::vector<std::string> names_of_configs(const std::string& kind);

/// The whole of the settings as TOML that `load` reads back to the same value (the run directory's
/// config.toml).
std::string to_toml(const RunConfig& config);
std::string to_toml(const ModelShape& shape);
std::string to_toml(const AdapterFacts& facts);
std::string to_toml(const ClusterFacts& facts);

struct SettingChange {
  std::string key, before, now;  ///< "table.key"; values in TOML spelling
};
/// The settings that are not the same, in the order of files.
std::vector<SettingChange> changed_settings(const RunConfig& before, const RunConfig& now);
/// Of those, with which a run may go on from a checkpoint although its bits change: [optim], [guard] and
/// train.steps, as "optim.lr is 0.001, and was 0.0003; ..."; "": there are none.
std::string changed_course(const RunConfig& before, const RunConfig& now);

/// Settings that may be left open filled in: cluster.ranks_per_node and precision.parameters from the
/// cluster, shard.group, train.lanes.
/// What a run directory's config.toml holds, so that a later change of defaults or of the cluster file does
/// not change the run.
RunConfig resolve(RunConfig config, const ClusterFacts& facts);
/// Without a cluster file, on a GPU or not: train.lanes and precision.parameters.
RunConfig resolve_arithmetic(RunConfig config, bool on_gpu);
/// What the cluster file and train.device say of where ranks will compute.
bool computes_on_gpus(const RunConfig& config, const ClusterFacts& facts);
/// Ranks that share one copy of the parameters: 1 (no_shard), `world` (full_shard, shard_grad_op), or
/// shard.group, 0 meaning ranks_per_node. (Under hfsdp the optimizer state is shared by the world.)
int shard_group_of(const RunConfig& config, int world);

/// What rules across fields refuse that need no cluster: one Error (usage) of each rule; those that others
/// rest on come alone. Those about the world size are skipped while ranks_per_node is 0, and those about
/// types while they are open: `resolve` first.
std::vector<Error> refusals_of(const RunConfig& config, const ModelShape& model);
/// Throws the first of them.
void check(const RunConfig& config, const ModelShape& model);
/// What GPUs cannot compute, in the words of the ranks that would refuse it. Throws Error (usage).
void check_gpu(const RunConfig& config, const ModelShape& model);

}  // namespace holdfast::config
