#pragma once
// The checks of preflight, by what they look at. Each keeps what it finds; what is not set is not looked at.
#include <cstdint>

#include "src/base/run_dir.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"
#include "src/preflight/problems.hpp"

namespace holdfast::preflight {

/// A job, as it would start now.
struct Subject {
  const config::RunConfig& config;
  const config::ModelShape& model;
  const config::ClusterFacts& facts;
  const RunDir& run;
  bool requeued = false;              ///< checkpoints in the run directory are the job's own
  bool settled = true;                ///< the settings are resolved, and contradict nothing
  std::int64_t checkpoint_bytes = 0;  ///< of one checkpoint; 0: not known
};

void check_program(const Subject& subject, Problems& problems);
void check_directory(const Subject& subject, Problems& problems);
void check_tokens(const Subject& subject, Problems& problems);
void check_weights(const Subject& subject, Problems& problems);
void check_adapters(const Subject& subject, Problems& problems);
/// The run directory is one, or may become one.
void check_run_dir(const Subject& subject, Problems& problems);
/// It is the run of this model.
void check_model(const Subject& subject, Problems& problems);
/// The checkpoint that ranks would continue from: the one that run.resume names, or with auto the newest that
/// can be read; others are left to the ranks.
void check_checkpoint(const Subject& subject, Problems& problems);
/// Room for the checkpoints that are kept.
void check_space(const Subject& subject, Problems& problems);
/// Nodes see what they will read and write, as far as this machine can tell.
void check_shared(const Subject& subject, Problems& problems);

}  // namespace holdfast::preflight
