#pragma once
// Silent data corruption, found by exact comparison (numerics rule 16); no bit of the run depends on it.
//
//   replicas     every verify.replicas_every steps, and of every state that is saved: ranks that should hold
//                the same compare digests of parameters and both moments. A save is compared before anybody
//                votes for it, so that every checkpoint is a state on which all replicas agreed.
//   micro-batch  every verify.micro_batch_every steps: of each rank one micro-batch of the step is computed
//                again by a rank of another node, and hashes of its gradients are compared. Costs one
//                micro-batch.
//   not finite   whenever a step's loss or gradient is NaN or infinite: all of its micro-batches are computed
//                again. The data and the state are the reason only where another rank comes to the same.
//
// What a comparison finds is decided by accuse.hpp.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/engine/accuse.hpp"
#include "src/train/engine/engine.hpp"

namespace holdfast::train {

class SilentCheck {
 public:
  /// References outlive it.
  SilentCheck(const Setup& setup, Engine& engine, comm::Communicator& world);

  /// What is compared how often, for people.
  std::string describe() const;

  /// The state at `step` is what training goes on from: all ranks have checked it.
  void begin_at(std::int64_t step);
  /// Before the gradients of the step that leads to optimizer step `step`.
  void begin_step(std::int64_t step);
  /// The state at `step` is being saved.
  void saving(std::int64_t step) { saved_step_ = step; }
  /// Of the newest save; -1: there was none.
  std::int64_t saved_step() const { return saved_step_; }

  /// Collective, after the gradients of the next step or at the end, before the state changes: the state at
  /// `point`, when it is due.
  std::optional<Doubt> compare_replicas(const checkpoint::RunPoint& point);
  /// Collective, after reduce() of the step that begins at `point`: the micro-batch that was watched, if
  /// one was.
  std::optional<Doubt> compare_micro_batch(const checkpoint::RunPoint& point,
                                           const Engine::Progress& progress);

  /// What came of a step whose loss or gradient is not finite.
  struct NotFinite {
    std::optional<Doubt> doubt;  ///< somebody computed wrong
    bool gone = false;           ///< nobody finds it again, and nobody can be accused of it
    std::string says;            ///< what was looked at, where there is no doubt
  };
  /// Collective, in the same place: computes every micro-batch of the step again, by the rank whose it is and
  /// by another one, of another node where there is one. Takes twice the computation of the step.
  NotFinite look_at_not_finite(const checkpoint::RunPoint& point, const Engine::Progress& progress);

 private:
  bool due(std::int64_t step) const;
  /// Of every rank's number, by rank.
  std::span<const std::uint64_t> numbers_of_all(std::uint64_t mine);
  /// Of all that this rank holds, as it is in memory now.
  std::uint64_t seal_of_held();
  std::optional<Doubt> compare(std::int64_t step, std::uint64_t seal);
  bool contradicts_its_seals();
  /// Hashes by micro-batch (of which rank), each computed `distance` ranks behind it.
  void recompute(int distance, std::int64_t first_sample, const Engine::Progress& progress,
                 std::vector<std::uint64_t>& by_micro_batch);

  /// Ranks between the one whose micro-batch it is and the one that computes it again.
  int distance() const;

  const Setup& setup_;
  Engine& engine_;
  comm::Communicator& world_;
  std::vector<int> kind_of_;
  bool comparable_ = false;  ///< some ranks hold the same
  // Made once: a check that holds allocates nothing.
  std::vector<std::uint64_t> digests_, numbers_, owners_, others_;
  std::int64_t saved_step_ = -1;        ///< to be compared
  std::int64_t compared_step_ = -1;     ///< replicas agreed on it
  std::int64_t micro_batch_step_ = -1;  ///< no micro-batch was wrong in the step behind it
  std::int64_t step_ = 0;               ///< that is being computed
  std::optional<std::uint64_t> chosen_;
};

}  // namespace holdfast::train
