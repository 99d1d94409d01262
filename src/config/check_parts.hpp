#pragma once
// The rules of `check`, by what they are about. Each refuses with the numbers and what to do.
#include "src/base/errors.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// Who runs and who watches: cluster, rank, supervise.
void check_launch(const RunConfig& config, ErrorList& refused);
void check_model(const ModelShape& model);
/// The sizes of a step, by which the rules below divide.
void check_train(const Train& train, const ModelShape& model);
/// What is computed: data, eval, precision, optim, guard, checkpoint.
void check_training(const RunConfig& config, const ModelShape& model, ErrorList& refused);
/// Who holds what, and who adds what: shard, and the lanes that its replicas need. Rules about the number of
/// ranks are skipped while ranks_per_node is 0.
void check_sharding(const RunConfig& config, const ModelShape& model);

}  // namespace holdfast::config
