#pragma once
// From files and flags to settings. Strict: an unknown key is an Error naming the nearest known one, with file and line.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/config/cluster_facts.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

struct Loaded {
  RunConfig config;
  /// For every key ("train.steps"): "default", "job.toml:12", "environment HOLDFAST_SET_..." or "flag".
  std::map<std::string, std::string> origin;
};

/// Reads a job file; `sets` are "table.key=value" from --set, value in TOML spelling (a bare word is taken as a string).
/// Precedence: flag, environment, file, default. Throws Error (usage).
Loaded load(const std::filesystem::path& file, const std::vector<std::string>& sets = {});

/// `name_or_path`: a path when it contains '/' or ends in .toml, else a name in configs/models (configs/clusters), which
/// is looked for beside the program's installation or build tree.
ModelShape load_model(const std::string& name_or_path);
ClusterFacts load_cluster(const std::string& name_or_path);
/// The file such a name stands for.
std::filesystem::path find_config(const std::string& kind, const std::string& name_or_path);

/// The whole of the settings as TOML that `load` reads back to the same value (the run directory's config.toml).
std::string to_toml(const RunConfig& config);
std::string to_toml(const ModelShape& shape);

/// Rules across fields that need no cluster; throws Error (usage or impossible) with a hint.
void check(const RunConfig& config, const ModelShape& model);

}  // namespace holdfast::config
