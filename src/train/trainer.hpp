#pragma once
// Training, from the point where the run stands to its last step. Everything below is static: memory is
// planned and allocated once, before the first step.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/comm/communicator.hpp"
#include "src/control/rank_link.hpp"
#include "src/data/sampler.hpp"
#include "src/model/transformer.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/train/metrics.hpp"
#include "src/train/model_weights.hpp"
#include "src/train/restore.hpp"
#include "src/train/saver.hpp"
#include "src/train/setup.hpp"

namespace holdfast::train {

class Trainer {
 public:
  /// `threads`: of this rank; 0: what OpenMP offers. References must outlive the trainer. Collective.
  Trainer(const Setup& setup, int threads, comm::Communicator& world, control::RankLink& link);

  /// Collective: restores, trains to the last step, saves, and returns the final state. Throws Error.
  control::FinalState run();
  /// Time spent in optimizer steps by run().
  double seconds_in_steps() const { return seconds_in_steps_; }

 private:
  /// Exact sums over the step, the same bits on every rank.
  struct Totals {
    tensor::ExactSum loss, squares;
    std::int64_t valid = 0;
    void all_reduce(comm::Communicator& world);
  };
  void restore_or_initialize();
  void initialize_weights();
  StepMetrics step();
  bool save_is_due() const;
  void report(const StepMetrics& metrics);
  void progress(control::Phase phase) { link_.progress(point_.step, phase); }

  const Setup& setup_;
  comm::Communicator& world_;
  control::RankLink& link_;
  data::TokenFile tokens_;
  data::Sampler sampler_;

  shard::Layout layout_;
  shard::LanePlan lanes_;
  std::unique_ptr<comm::Communicator> shard_group_, replicas_;
  std::unique_ptr<kernels::Kernels> kernels_;
  tensor::InlineStream stream_;
  tensor::Arena arena_{"training state"};
  shard::ShardedWeights weights_;
  ModelWeights model_weights_;
  optim::ShardedAdamW adamw_;
  model::Transformer transformer_;
  std::vector<std::int32_t> leaf_tokens_;

  StateViews views_;
  checkpoint::Facts facts_;
  checkpoint::Generation generation_;
  checkpoint::RunPoint point_;  ///< where the run stands
  std::optional<Metrics> metrics_;
  std::string digest_;  ///< of the state at point_, when known
  double seconds_in_steps_ = 0;
  Clock::time_point last_line_{};
};

}  // namespace holdfast::train
