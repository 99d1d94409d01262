#pragma once
// One line per setting: file key, field, meaning, allowed values. Reading files, --set, the environment,
// writing, listing and suggestions all walk these tables; nothing else knows the name of a setting.
#include <functional>
#include <vector>

#include "src/config/adapters.hpp"
#include "src/config/choices.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/rule.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

template <class Struct>
struct Setting : Rule {
  std::function<Value(const Struct&)> get;
  std::function<void(Struct&, const Value&)> set;  ///< wants a value that went through `fit`
};

/// Every setting, in the order they are written to a file.
const std::vector<Setting<RunConfig>>& run_settings();
const std::vector<Setting<ModelShape>>& model_settings();
const std::vector<Setting<AdapterFacts>>& adapter_settings();        ///< of what checkpoints keep
const std::vector<Setting<ClusterFacts>>& cluster_settings();        ///< tables outside [[unit]] and [[gpu]]
const std::vector<Setting<ScalableUnit>>& scalable_unit_settings();  ///< [[unit]]
const std::vector<Setting<GpuFacts>>& gpu_settings();                ///< [[gpu]]

}  // namespace holdfast::config
