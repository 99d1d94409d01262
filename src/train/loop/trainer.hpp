#pragma once
// Training, from the point where the run stands to its last step: what happens when. How a step is computed
// is the engine's.
#include <optional>
#include <string>

#include "src/base/clock.hpp"
#include "src/base/write_queue.hpp"
#include "src/comm/communicator.hpp"
#include "src/control/rank_link.hpp"
#include "src/optim/best_loss.hpp"
#include "src/optim/guard.hpp"
#include "src/train/common/metrics.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/engine/engine.hpp"
#include "src/train/engine/silent_check.hpp"
#include "src/train/local/partner.hpp"
#include "src/train/loop/best_marks.hpp"
#include "src/train/loop/injection.hpp"
#include "src/train/loop/loss_memory.hpp"
#include "src/train/loop/step_account.hpp"
#include "src/train/loop/step_hold.hpp"
#include "src/train/loop/stop_signals.hpp"
#include "src/train/loop/token_data.hpp"
#include "src/train/restore/restore.hpp"
#include "src/train/save/save_policy.hpp"
#include "src/train/save/saver.hpp"

namespace holdfast::train {

class Trainer {
 public:
  /// `world`: of `device`. `recorder`: of its collectives, or null. References must outlive the trainer.
  /// Collective.
  Trainer(const Setup& setup, device::Device& device, comm::Communicator& world,
          const flight::FlightRecorder* recorder, control::RankLink& link);

  /// Collective: restores, trains to the last step, saves, and returns the final state. Throws Error; one
  /// with Exit::transient when the run was asked to stop and its state is saved.
  control::FinalState run();
  /// Time spent in optimizer steps by run().
  double seconds_in_steps() const { return account_.seconds_in_steps(); }

 private:
  /// True unless the state is one that only the local levels have.
  bool restore_or_initialize();
  /// From the newest checkpoint, or from the beginning; not from the samples that led here. `durable`: a step
  /// that has a checkpoint; -1: none is known.
  void roll_back(std::int64_t next_sample, std::int64_t durable);
  RestoreContext context();
  /// Says with which other settings the run goes on than the run of its checkpoint had.
  void say_changed_course(const RestoredFrom& from) const;
  /// Takes over a state that was loaded or made.
  void begin_at(const RestoredFrom& from);
  /// One global batch: computed, judged, and where it is sound, applied and saved, where that is due.
  /// Nothing: skipped or rolled back. `orders`: what rank 0 says.
  std::optional<StepMetrics> step(StepOrders& orders);
  /// What goes on beside the computation of a step: accounts, comparisons, drills.
  void before_step();
  /// False: the step is to be computed again.
  bool after_gradients(const MicroBatchSums& sums);
  /// Collective: a step whose sums are not finite. False: it is to be computed again.
  bool look_at_not_finite();
  void before_update();
  /// The update that all ranks make, and the orders of rank 0 for the step.
  optim::StepUpdate decide(const MicroBatchSums& sums, StepOrders& orders);
  /// What the guard says of it. False: the step is skipped, or the run was rolled back.
  bool accept(const MicroBatchSums& sums, const optim::StepUpdate& update);
  /// Logical rank 0: what happens at the end of the step that goes on.
  StepOrders orders_of_this_step();
  /// Logical rank 0: what the run is told. Of a save or a stop policy_ knows then.
  control::Orders take_orders();
  /// What a held-out loss means for the state at point_: it may have to be saved.
  void judge(double held_out_loss, StepOrders& orders);
  /// There is no further step: the last one is done, or the held-out loss gets no better.
  bool is_over() const;
  /// Local snapshot and save of the state at point_, where they are due.
  void keep(bool snapshot, const StepOrders& orders);
  [[noreturn]] void stop(const StepOrders& orders);
  /// Collective, while the state at point_ does not change: comparisons that are due. A state that is saved
  /// is compared before it can become durable.
  void check_replicas();
  /// Collective: the leader hears who is accused; what the local level has of later steps is put away.
  [[noreturn]] void distrust(const Doubt& doubt);
  /// Collective, between two steps: waits until the run is to go on. Drains are still carried out. `saved`:
  /// the state has been saved already.
  void hold(bool saved);
  bool evaluation_is_due() const;
  /// Collective: mean loss of each held-out file, by its name.
  std::vector<std::pair<std::string, double>> evaluate();
  void say_memory();
  void learn(const StepMetrics& metrics);
  void report(const StepMetrics& metrics);
  void progress(control::Phase phase) { link_.progress(point_.step, phase); }

  const Setup& setup_;
  comm::Communicator& world_;
  control::RankLink& link_;
  TokenData data_;
  Engine engine_;

  const StateViews& views_;  ///< of the engine: what they show may move with every step
  checkpoint::Facts facts_;
  checkpoint::Generation generation_;
  SilentCheck silent_;
  std::optional<RankInjector> injector_;  ///< where drill.allowed
  std::optional<StepHold> hold_;          ///< likewise
  std::optional<BestMarks> best_marks_;   ///< on logical rank 0, where the best state is kept
  WriteQueue records_;                    ///< metrics and traces on their way to the run directory
  Saver saver_;
  std::unique_ptr<PartnerCopies> partners_;  ///< where no replica has the same
  checkpoint::RunPoint point_;               ///< where the run stands
  LossMemory losses_;                        ///< what is remembered of them; a part of the state
  std::optional<Metrics> metrics_;           ///< on logical rank 0
  std::optional<SavePolicy> policy_;         ///< likewise
  double stalled_s_ = 0;                     ///< that steps waited for snapshots since the newest save
  std::optional<StopSignals> signals_;       ///< in bare mode
  StepAccount account_;
  /// Where the computation of a step has come to.
  const Engine::Progress moved_ = [this](control::Phase phase) {
    progress(phase);
    if (injector_) injector_->passed(phase);
  };
  std::string digest_;  ///< of the state at point_, when known
  bool memory_was_said_ = false;
  std::int64_t repeated_step_ = -1;  ///< was computed again, since it was not finite
  std::string not_finite_says_;      ///< of the step that is computed: what computing it again has shown
  Clock::time_point last_line_{};
};

}  // namespace holdfast::train
