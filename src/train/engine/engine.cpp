// The constructor plans all memory, commits it, agrees with the other ranks on the algorithms of products,
// fills in frozen weights, and refuses a world whose ranks would compute differently. Snapshot buffers come
// last; on a CPU the optimizer works in them.
//
// A step: begin_step(); for each micro-batch load() and forward_backward(); reduce() finishes the gradients,
// sums losses and squares over all ranks, and seals the snapshot before this step; agree_on_update() takes
// rank 0's decision; update() writes the new state, where there are snapshots into the next buffer, and
// publishes the weights that the model reads. evaluate() runs micro-batches forward only.
//
// The gradients of one micro-batch of a step may be looked at (gradient_watch_): a silent check hashes them,
// and a drill makes one of them wrong. Nothing is allocated after the first step.
#include "src/train/engine/engine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"
#include "src/config/compute_options.hpp"
#include "src/config/read_ahead.hpp"
#include "src/config/snapshot_buffers.hpp"
#include "src/model/init.hpp"
#include "src/shard/wire_plan.hpp"
#include "src/train/engine/algorithms.hpp"
#include "src/train/engine/frozen_base.hpp"
#include "src/train/engine/identity.hpp"
#include "src/train/engine/initial_weights.hpp"
#include "src/train/local/local_level.hpp"

namespace holdfast::train {
namespace {

using tensor::Work;

/// Of the sums that ranks add up: of each loss its limbs and its labels, and the limbs of the squares.
std::size_t sums_words(std::size_t losses) {
  constexpr std::size_t limbs = std::tuple_size_v<tensor::ExactSum::Words>;
  return losses * (limbs + 1) + limbs;
}

constexpr std::size_t spans_of_a_micro_batch = 64;  // per block, generously: what a traced step may need

shard::Mesh mesh_of(const Setup& setup) {
  return shard::mesh_of(setup.config.shard.strategy, setup.config.shard.group, setup.place.ranks_per_node,
                        setup.place.world, setup.place.rank);
}

BatchOrder order_of(const config::Train& train, const config::LanePlan& lanes, const shard::Mesh& mesh) {
  BatchOrder out{train.global_batch, {}};
  for (int i = 0; i < lanes.micro_steps(mesh.replica()); ++i)
    out.of_micro_step.push_back(lanes.micro_batch(mesh.replica(), i, mesh.member()) * train.micro_batch);
  return out;
}

std::size_t spans_of(const Setup& setup) {
  if (setup.config.trace.count == 0) return 0;
  return as_size(setup.config.trace.count) * as_size(config::micro_batches(setup.config.train)) *
         as_size(setup.shape.layers + 2) * spans_of_a_micro_batch;
}

}  // namespace

Engine::Engine(const Setup& setup, const data::Samples& samples, device::Device& device,
               comm::Communicator& world)
    : setup_(setup),
      samples_(samples),
      device_(device),
      world_(world),
      profile_(spans_of(setup)),
      kernels_(device.kernels(), profile_, !device.is_host()),
      timed_stream_(profile_),
      stream_(device.is_host() ? timed_stream_ : device.compute()),
      tensors_(config::tensors_of(setup.shape)),
      layout_(shard::layout_of(setup.shape, mesh_of(setup))),
      lanes_(setup.config.train, layout_.mesh.replicas, layout_.mesh.group),
      policy_(shard::policy_of(setup.config, setup.shape.layers)),
      groups_(shard::groups_of(layout_.mesh, world)),
      weights_(layout_, lanes_, policy_,
               {groups_, kernels_, world.size() == 1 ? kernels_ : device.reduce_kernels(), stream_,
                symmetric_, own_, &parameters_}),
      model_weights_(weights_),
      gradient_watch_(model_weights_, layout_, device, stream_),
      tensor_groups_(optim::tensor_groups(setup.config.optim, tensors_)),
      adamw_(layout_, tensor_groups_, type_of(setup.config.precision.moments), kernels_, stream_, moments_,
             own_),
      transformer_(setup.shape, config::compute_options_of(setup.config, samples.sources()), kernels_,
                   stream_, own_),
      losses_(as_size(samples.sources())),
      words_(sums_words(losses_.size())),
      window_(device),
      micro_batch_(setup.config.train.micro_batch, setup.config.train.sequence, setup.config.data.boundaries),
      batches_(samples, setup.config.train.micro_batch, setup.config.train.sequence,
               setup.config.data.boundaries, order_of(setup.config.train, lanes_, layout_.mesh),
               config::micro_batches_ahead(setup.config), patience_with_tokens(setup.config)) {
  if (setup.config.precision.products == config::Products::fp8 &&
      setup.config.fp8.scaling == config::Scaling::delayed) {
    scaling_.emplace(setup.shape.layers, setup.config.fp8);
    amaxes_.resize(scaling_->scales().size()), amax_words_.resize(amaxes_.size());
  }
  symmetric_.commit(world.symmetric_memory(symmetric_.planned_bytes()));
  own_.commit(device.allocate(own_.planned_bytes(), "weights, gradients and activations"));
  const bool offload = setup.config.shard.offload == config::Offload::moments;
  if (!device.is_host()) {  // else they lie in snapshot buffers
    parameters_.commit(device.allocate(parameters_.planned_bytes(), "the parameters"));
    moments_.commit(offload ? device.allocate_host(moments_.planned_bytes(), "the moments")
                            : device.allocate(moments_.planned_bytes(), "the moments"));
  }
  const std::string& resume = setup.config.run.resume;
  const bool forks = resume != "auto" && resume != "none";
  if (!device.is_host())
    agree_on_algorithms(device, world, setup.dir.algorithms(), forks ? resume : "", [this] { rehearse(); });
  base_ = fill_frozen(setup, layout_, policy_, weights_, stream_, world);
  require_one_identity(world, numerics());
  local_run_ = local_run_of(setup.config, setup.shape, layout_.mesh, numerics(), samples.identity());
  buffer_shape_ = buffer_shape_of(local_run_, world.rank());
  open_snapshots();
  const auto [parameters, exp_avg, exp_avg_sq] = arenas();
  views_ = views_of(setup_.shape, layout_, parameters, exp_avg, exp_avg_sq, adamw_.moments());
  transformer_.on_progress([this](model::Direction direction, int) {
    if (progress_ != nullptr)
      (*progress_)(direction == model::Direction::forward ? control::Phase::forward
                                                          : control::Phase::backward);
  });
}

std::string Engine::numerics() const {
  return numerics_identity(setup_.config, base_.digest,
                           device_.kernels().identity(type_of(setup_.config.precision.parameters)));
}

void Engine::open_snapshots() {
  SnapshotParts parts{local_run_, world_.rank(), {}, {}, setup_.config.checkpoint.local_every, {}};
  if (const auto folder = local_folder_of(setup_)) {
    parts.file.emplace(open_state_folder(setup_, local_run_, *folder));
    if (world_.rank() == 0)
      log::info("each rank has {} snapshot buffers of {} in {} (local level)", parts.file->buffers(),
                size_text(buffer_shape_.bytes), folder->string());
  } else {
    const bool host = device_.is_host();  // its optimizer works in them
    for (int i = 0; i < config::snapshot_buffers({.gpu = !host}); ++i)
      parts.memory.push_back(host ? device_.allocate_host(buffer_shape_.bytes, "the state and its snapshots")
                                  : snapshot_memory_.emplace_back(buffer_shape_.bytes).span());
  }
  if (device_.is_host()) {
    parts.live = [this](std::span<std::byte> buffer) { live_in(buffer); };
    snapshots_ = make_host_snapshots(std::move(parts));
  } else {
    snapshots_ = make_device_snapshots(std::move(parts), device_, arenas());
  }
}

StateArenas Engine::in_buffer(std::span<std::byte> buffer) const {
  return {reinterpret_cast<float*>(buffer.data()), buffer.data() + buffer_shape_.exp_avg,
          buffer.data() + buffer_shape_.exp_avg_sq};
}

void Engine::live_in(std::span<std::byte> buffer) {
  const auto lie = [](tensor::Arena& arena, std::span<std::byte> memory) {
    arena.committed() ? arena.move_to(memory) : arena.commit(memory);
  };
  const auto parameter_bytes = as_size(buffer_shape_.exp_avg);
  lie(parameters_, buffer.first(parameter_bytes));
  lie(moments_, buffer.subspan(parameter_bytes));
  if (!views_.held.tensors.empty()) show(arenas());  // else they are yet to be made
}

void Engine::show(const StateArenas& arenas) {
  move_views(views_, layout_, arenas.parameters, arenas.exp_avg, arenas.exp_avg_sq, adamw_.moments());
}

void Engine::make_room() {
  restoring_ = !device_.is_host() && !snapshots_->local();  // else the state itself, or a buffer of the file
  if (restoring_) show(in_buffer(snapshots_->buffer(0)));
}

void Engine::initialize() {
  snapshots_->invalidate();
  if (std::exchange(restoring_, false)) show(arenas());
  const bool adapts = setup_.shape.adapters.any();  // then model.weights lie beside what is trained
  const bool from_files = !(adapts ? setup_.config.lora.weights : setup_.config.model.weights).empty();
  if (from_files && adapts) read_initial_adapters(setup_, base_.digest, views_, window_, world_);
  if (from_files && !adapts) read_initial_weights(setup_, views_, window_, world_);
  const auto moment_bytes = tensor::bytes_of(adamw_.moments());
  const auto [parameters, exp_avg, exp_avg_sq] = arenas();
  for (const shard::Piece& piece : layout_.held) {
    const config::TensorSpec& tensor = tensors_[piece.tensor];
    if (!from_files) {
      constexpr std::int64_t each = sizeof(float);
      window_.write(reinterpret_cast<std::byte*>(parameters + piece.offset), piece.count * each,
                    [&](std::span<std::byte> part, std::int64_t at) {
                      model::initial_weights(setup_.shape, tensor, setup_.config.train.seed,
                                             piece.first + at / each,
                                             {reinterpret_cast<float*>(part.data()), part.size() / each});
                    });
    }
    for (std::byte* moments : {exp_avg, exp_avg_sq})  // a failed load may have left something
      stream_.zero(moments + piece.offset * moment_bytes, piece.count * moment_bytes);
  }
}

void Engine::publish() {
  if (std::exchange(restoring_, false)) {
    snapshots_->adopt(0);
    show(arenas());
  }
  weights_.publish();
  if (setup_.config.checkpoint.every > 0 || snapshots_->local()) snapshots_->prepare();
}

void Engine::rehearse() {
  /// Addresses that nobody looks behind.
  struct Anywhere final : model::Weights {
    Anywhere(shard::ShardedWeights& shards, const shard::Layout& layout)
        : memory_(shards.parameters()), shards_(shards), layout_(layout) {}
    void acquire(int) override {}
    const void* weight(int) override { return memory_; }
    void release(int) override {}
    float* gradient(int stored) override { return layout_.slices[stored].frozen ? nullptr : memory_; }
    tensor::DType gradient_type(int stored) override { return shards_.gradient_type(stored); }
    void reduce(int) override {}
    float* memory_;
    const shard::ShardedWeights& shards_;
    const shard::Layout& layout_;
  } anywhere(weights_, layout_);
  device_.replay(false);
  transformer_.forward_backward(anywhere, micro_batch_.blank());
  device_.replay(true);
  profile_.clear();
}

void Engine::begin_step(const Progress& progress) {
  progress_ = &progress;
  device_.replay(!profile_.tracing());
  transformer_.new_weights();
  weights_.begin_step();
}

model::Batch Engine::load(std::int64_t first_sample, int micro_step) {
  (*progress_)(control::Phase::data);
  model::Batch batch;
  profile_.time(Work::data, "read", [&] { batch = batches_.read(first_sample, micro_step); });
  return batch;
}

void Engine::forward_backward(const model::Batch& batch, int micro_step) {
  const bool watched = micro_step == watched_, looked_at = watched || broken_;
  weights_.begin_micro_step(micro_step, looked_at);
  if (looked_at) {
    gradient_watch_.begin(true, watched && fault_ ? fault_ : broken_);
    transformer_.forward_backward(gradient_watch_, batch);
    if (watched) watched_hash_ = gradient_watch_.seen().hash;
  } else {
    transformer_.forward_backward(model_weights_, batch);
  }
}

MicroBatchSums Engine::reduce() {
  watched_ = -1;
  (*progress_)(control::Phase::collective);
  weights_.finish_step();
  MicroBatchSums sums;
  transformer_.take_losses(losses_);
  own_loss_was_finite_ =
      std::ranges::all_of(losses_, [](const auto& loss) { return std::isfinite(loss.sum.value()); });
  sums.squares = adamw_.squares(weights_.gradients());
  // Nobody leaves the sum before all have come to it: then the snapshot before this step is sealed
  // everywhere, and whoever goes on may write over an older one.
  profile_.time(Work::waiting, "seal", [&] { waited_for_seal_ = snapshots_->join(); });
  all_reduce(sums, losses_);
  sums.by_source = losses_;
  if (scaling_) all_reduce_amaxes();
  progress_ = nullptr;
  return sums;
}

model::Batch Engine::read_micro_batch(std::int64_t first_sample, std::int64_t micro_batch) {
  model::Batch batch;
  profile_.time(Work::data, "read", [&] {
    batch = micro_batch_.read(samples_, first_sample + micro_batch * setup_.config.train.micro_batch);
  });
  return batch;
}

optim::StepUpdate Engine::agree_on_update(const MicroBatchSums& sums, std::int64_t step, StepOrders& orders) {
  struct {
    optim::StepUpdate update;
    StepOrders orders;
  } both{optim::step_update(setup_.config.optim, tensor_groups_, step, setup_.config.train.steps,
                            sums.squares.value(), sums.valid),
         orders};
  profile_.time(Work::waiting, "update of rank 0",
                [&] { world_.broadcast(std::as_writable_bytes(std::span(&both, 1)), 0); });
  orders = both.orders;
  return both.update;
}

void Engine::update(const optim::StepUpdate& step) {
  const std::span<std::byte> next = snapshots_->next();
  adamw_.update(arenas(), weights_.gradients(), step, next.empty() ? arenas() : in_buffer(next));
  if (!next.empty()) snapshots_->moved();
  weights_.publish();
  if (scaling_ && step.update) {
    scaling_->advance(amaxes_);
    transformer_.set_scales(scaling_->scales());
  }
}

void Engine::set_scaling(const std::string& text) {
  if (!scaling_) return;
  scaling_->load(text);
  transformer_.set_scales(scaling_->scales());
}

MicroBatchSums Engine::evaluate(const data::TokenFile& held_out, std::int64_t samples,
                                const Progress& progress) {
  progress_ = &progress;
  const std::int64_t rows = setup_.config.train.micro_batch;
  samples = std::min(samples, data::windows_of(held_out, setup_.config.train.sequence));
  MicroBatchSums sums;
  transformer_.new_weights();
  // All ranks take part in every round, since units are gathered together; who has no sample left computes
  // one of which nothing counts.
  for (std::int64_t round = 0; round * world_.size() * rows < samples; ++round) {
    const std::int64_t first = (round * world_.size() + world_.rank()) * rows;
    weights_.begin_evaluation();
    transformer_.evaluate(model_weights_, micro_batch_.read(held_out, first, samples));
  }
  progress(control::Phase::collective);
  model::LossSum loss = transformer_.take_loss();
  all_reduce(sums, {&loss, 1});
  progress_ = nullptr;
  return sums;
}

std::optional<double> Engine::waited_for_others() const {
  if (!device_.is_host()) return std::nullopt;
  return profile_.totals(Work::waiting).seconds;
}

void Engine::all_reduce(MicroBatchSums& sums, std::span<model::LossSum> losses) {
  const auto words = std::span(words_).first(sums_words(losses.size()));
  auto to = words.begin();
  for (const model::LossSum& loss : losses) {
    to = std::ranges::copy(loss.sum.words(), to).out;
    *to++ = static_cast<std::uint64_t>(loss.valid);
  }
  std::ranges::copy(sums.squares.words(), to);
  profile_.time(Work::waiting, "totals", [&] { world_.all_reduce(words, comm::Scalar::sum); });
  auto from = words.begin();
  const auto take = [&from] {
    tensor::ExactSum::Words part;
    for (std::uint64_t& word : part) word = *from++;
    return tensor::ExactSum::from_words(part);
  };
  model::LossSum all;
  for (model::LossSum& loss : losses) {
    loss.sum = take();
    loss.valid = static_cast<std::int64_t>(*from++);
    all.add(loss);
  }
  sums.loss = all.sum;
  sums.valid = all.valid;
  sums.squares = take();
}

/// The largest of all ranks' micro-batches: the same on every rank, however micro-batches are shared out.
void Engine::all_reduce_amaxes() {
  transformer_.take_amaxes(amaxes_);
  std::ranges::copy(amaxes_, amax_words_.begin());
  profile_.time(Work::waiting, "totals", [&] { world_.all_reduce(amax_words_, comm::Scalar::max); });
  std::ranges::transform(amax_words_, amaxes_.begin(),
                         [](std::uint64_t word) { return static_cast<std::uint32_t>(word); });
}

Engine::Memory Engine::memory() const {
  Memory sum;
  const auto add = [&](const tensor::Arena& arena, int times) {
    sum.planned += times * arena.planned_bytes();
    sum.used += times * arena.used_bytes();
  };
  const int buffers = device_.is_host() ? snapshots_->buffers() : 1;
  add(symmetric_, 1), add(own_, 1), add(parameters_, buffers), add(moments_, buffers);
  return sum;
}

std::int64_t Engine::planned_wire_bytes() const { return shard::wire_plan(layout_, lanes_, policy_).total(); }

std::int64_t Engine::wire_bytes() const {
  return groups_.gathers->wire().total() + groups_.reductions->wire().total() +
         groups_.replicas->wire().total();
}

}  // namespace holdfast::train
