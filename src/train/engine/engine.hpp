#pragma once
// The machinery of one rank: kernels, shards, optimizer and model on memory that is planned and allocated
// once. It computes what it is asked for; what happens when is the trainer's.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/config/lane_plan.hpp"
#include "src/control/rank_link.hpp"
#include "src/device/device.hpp"
#include "src/kernels/timed_kernels.hpp"
#include "src/model/fp8_scaling.hpp"
#include "src/model/transformer.hpp"
#include "src/model/weights.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/shard/sharded_weights.hpp"
#include "src/tensor/profile.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/common/step_orders.hpp"
#include "src/train/engine/batch_reader.hpp"
#include "src/train/engine/frozen_base.hpp"
#include "src/train/engine/gradient_watch.hpp"
#include "src/train/engine/micro_batch.hpp"
#include "src/train/local/lazy_memory.hpp"
#include "src/train/local/snapshots.hpp"
#include "src/train/state/state_views.hpp"
#include "src/train/state/state_window.hpp"

namespace holdfast::train {

/// Exact sums over micro-batches, the same bits on every rank once they are all-reduced.
struct MicroBatchSums {
  tensor::ExactSum loss, squares;
  std::int64_t valid = 0;  ///< labels that are not masked
  /// Of a step: the same by source of the data; until the next reduce().
  std::span<const model::LossSum> by_source = {};
  double mean_loss() const { return valid == 0 ? 0.0 : loss.value() / static_cast<double>(valid); }
};

/// Joins the model, which asks for weights unit by unit, to the shards, which have them. Neither knows the
/// other.
class ModelWeights final : public model::Weights {
 public:
  explicit ModelWeights(shard::ShardedWeights& shards) : shards_(shards) {}
  void acquire(int unit) override { shards_.acquire(unit); }
  const void* weight(int stored) override { return shards_.weight(stored); }
  void release(int unit) override { shards_.release(unit); }
  float* gradient(int stored) override { return shards_.gradient(stored); }
  bool adds(int stored) override { return shards_.adds(stored); }
  tensor::DType gradient_type(int stored) override { return shards_.gradient_type(stored); }
  void reduce(int unit) override { shards_.reduce(unit); }

 private:
  shard::ShardedWeights& shards_;
};

class Engine {
 public:
  /// Collective. `world`: of `device`. References outlive the engine.
  Engine(const Setup& setup, const data::Samples& samples, device::Device& device, comm::Communicator& world);

  /// What the run's bits depend on beside its data (numerics rule 13).
  std::string numerics() const;
  const shard::Layout& layout() const { return layout_; }
  /// What adapters are trained on; empty without adapters.
  const FrozenBase& base() const { return base_; }
  /// Of the state where it lies, on a GPU in its memory: then the host sees it through window(). On the host
  /// it lies in a snapshot buffer, and the memory that they show changes with update(): keep the reference,
  /// no copy.
  const StateViews& views() const { return views_; }
  StateWindow& window() { return window_; }
  /// Where the state lies now, on the device. It changes with update(), and so may these.
  StateArenas arenas() { return {weights_.parameters(), adamw_.exp_avg(), adamw_.exp_avg_sq()}; }
  /// What the snapshots of all ranks are like; also where there is no local level.
  const LocalRun& local_run() const { return local_run_; }
  Snapshots& snapshots() { return *snapshots_; }
  /// The same where there is a local level, else null.
  Snapshots* local() { return snapshots_->local() ? snapshots_.get() : nullptr; }
  /// Before a restore: from here to initialize() or publish() the views show memory that the host can fill.
  void make_room();
  /// Step 0: weights of the seed, or those that model.weights names; moments zero. Each rank fills in what it
  /// holds; nobody ever has the whole model. Collective.
  void initialize();
  /// The state was changed from outside (initialized, loaded). Collective.
  void publish();

  /// The gradients of a step, all collective, in this order: begin_step(); for each micro-step load() and
  /// forward_backward(); reduce(). `progress` is called on this thread until reduce() returns.
  using Progress = std::function<void(control::Phase)>;
  void begin_step(const Progress& progress);
  /// Micro-batches that this rank computes in a step.
  int micro_steps() const { return lanes_.micro_steps(layout_.mesh.replica()); }
  /// The value of the rank that computes most.
  int most_micro_steps() const;
  /// This rank's micro-batch of a micro-step, in the step that begins with global sample `first_sample`;
  /// valid until the next one is read.
  model::Batch load(std::int64_t first_sample, int micro_step);
  /// Its gradient is added to the accumulation lanes, unit by unit.
  void forward_backward(const model::Batch& batch, int micro_step);
  /// The gradient of the *sum* of losses is then in the shards.
  MicroBatchSums reduce();
  /// Whether this rank's own losses of the newest step were finite; until the next reduce().
  bool own_loss_was_finite() const { return own_loss_was_finite_; }
  /// Seconds that the newest reduce() waited for the seal of the snapshot before it, see
  /// Snapshots::join().
  double waited_for_seal() const { return waited_for_seal_; }
  /// Seconds that load() has waited since the start, or since the profile was cleared.
  double waited_for_data() const { return profile_.totals(tensor::Work::data).seconds; }
  /// Bytes of the device's memory that are in use, by whomever; 0 on the host.
  std::int64_t device_bytes() const { return device_.used_bytes(); }
  /// The one update of a step, computed on logical rank 0 and taken over by the others bit by bit; with it,
  /// what else rank 0 orders for the step (`orders` of the others are overwritten). Collective.
  optim::StepUpdate agree_on_update(const MicroBatchSums& sums, std::int64_t step, StepOrders& orders);
  /// The optimizer step, and scales for the next. Collective.
  void update(const optim::StepUpdate& step);
  /// Collective: loss over `samples` windows of `held_out`, drawn by a fixed key (all when it has fewer),
  /// forward only.
  MicroBatchSums evaluate(const data::TokenFile& held_out, std::int64_t samples, const Progress& progress);

  /// Seconds that this thread has waited for other ranks since the start, or since the profile was cleared;
  /// nothing on a device, whose waits the host does not see.
  std::optional<double> waited_for_others() const;

  /// One micro-batch of each rank in a step is chosen by a number that all ranks have: the micro-batch of
  /// `rank`. The numbers 0, 1, ... choose one after the other.
  std::int64_t micro_batch_of(int rank, std::uint64_t chosen) const;
  /// The next step hashes the micro-batch that is chosen of this rank, see watched_hash().
  void watch_micro_batch(std::uint64_t chosen);
  bool watches_micro_batch() const { return watched_ >= 0; }
  std::uint64_t watched_hash() const { return watched_hash_; }
  /// Collective, after reduce() and before update(): computes `micro_batch` of the step again, each rank
  /// any one, and gives the hash of its gradients. Nothing of the step changes.
  struct Recomputed {
    std::uint64_t hash = 0;
    bool finite = true;  ///< its loss and all of its gradients
  };
  Recomputed recompute_micro_batch(std::int64_t first_sample, std::int64_t micro_batch,
                                   const Progress& progress);
  /// Drills: in the next step the watched micro-batch, or where none is watched the first one, gets a
  /// fault.
  void spoil_gradient(const GradientFault& fault);
  /// Drills: from now on each micro-batch that this rank computes has the fault, also one that it computes
  /// again.
  void break_gradients(const GradientFault& fault) { broken_ = fault; }
  /// Drills: changes one bit of this rank's fp32 parameters.
  void flip_parameter(std::uint64_t seed);

  /// What delayed scaling of 8-bit products remembers, see Fp8Scaling::text(); "" where there is nothing.
  std::string scaling() const { return scaling_ ? scaling_->text() : ""; }
  void set_scaling(const std::string& text);

  tensor::Profile& profile() { return profile_; }
  /// Bytes of the arenas, as planned, and as used by what was asked for so far.
  struct Memory {
    std::int64_t planned = 0, used = 0;
  };
  Memory memory() const;
  /// Bytes that this rank has sent since the start; after reduce(), everything up to there.
  std::int64_t wire_bytes() const;
  /// What it sends between the reduce() of one step and that of the next, evaluations apart.
  std::int64_t planned_wire_bytes() const;

 private:
  int micro_step_of(int replica, std::uint64_t chosen) const;
  /// A micro-batch of the step.
  model::Batch read_micro_batch(std::int64_t first_sample, std::int64_t micro_batch);
  /// The losses of all ranks; their sum, and all other sums, into `sums`.
  void all_reduce(MicroBatchSums& sums, std::span<model::LossSum> losses);
  void all_reduce_amaxes();
  /// What a micro-batch consists of, on any memory: for a device that only takes notes.
  void rehearse();
  void open_snapshots();
  /// The three arenas, in a snapshot buffer.
  StateArenas in_buffer(std::span<std::byte> buffer) const;
  void show(const StateArenas& arenas);
  /// From now on the state lies in this buffer.
  void live_in(std::span<std::byte> buffer);

  const Setup& setup_;
  const data::Samples& samples_;
  device::Device& device_;
  comm::Communicator& world_;

  tensor::Profile profile_;
  kernels::TimedKernels kernels_;
  kernels::TimedStream timed_stream_;  // the host's
  tensor::Stream& stream_;

  std::vector<config::TensorSpec> tensors_;
  FrozenBase base_;  // what adapters are trained on
  shard::Layout layout_;
  config::LanePlan lanes_;
  shard::Policy policy_;
  shard::Groups groups_;
  tensor::Arena symmetric_{"memory shared with other ranks"}, own_{"gradients and activations"},
      parameters_{"parameters"}, moments_{"moments"};
  shard::ShardedWeights weights_;
  ModelWeights model_weights_;
  GradientWatch gradient_watch_;
  optim::TensorGroups tensor_groups_;
  optim::ShardedAdamW adamw_;
  model::Transformer transformer_;
  std::vector<model::LossSum> losses_;        // of the newest step, by source
  std::vector<std::uint64_t> words_;          // of sums on their way to other ranks
  std::optional<model::Fp8Scaling> scaling_;  // delayed
  std::vector<std::uint32_t> amaxes_;         // of the step whose gradients lie in the shards
  std::vector<std::uint64_t> amax_words_;
  StateWindow window_;
  StateViews views_;
  LocalRun local_run_;
  BufferShape buffer_shape_;
  std::vector<LazyMemory> snapshot_memory_;  ///< of a device, without a local level
  std::unique_ptr<Snapshots> snapshots_;
  bool restoring_ = false;  // the views show a snapshot buffer, though the state lies on a device
  MicroBatch micro_batch_;
  BatchReader batches_;
  int watched_ = -1;  // micro-step of the next step
  std::optional<GradientFault> fault_, broken_;
  std::uint64_t watched_hash_ = 0;
  const Progress* progress_ = nullptr;  // while micro-batches are computed
  double waited_for_seal_ = 0;
  bool own_loss_was_finite_ = true;
};

}  // namespace holdfast::train
