#include "src/train/trainer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/catalog.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/model/init.hpp"
#include "src/train/agree.hpp"
#include "src/train/identity.hpp"

namespace holdfast::train {
namespace {

data::TokenFile open_tokens(const Setup& setup) {
  if (setup.config.data.tokens.empty())
    throw Error(Exit::usage, "there is no token file", "data.tokens is not set",
                "Make one with holdfast data prepare?");
  auto file = data::TokenFile::open(setup.config.data.tokens, std::int64_t{setup.config.train.sequence} + 1);
  if (file.vocabulary() > setup.shape.vocabulary)
    throw Error(
        Exit::usage,
        fmt::format("the token file {} has another vocabulary than the model", setup.config.data.tokens),
        fmt::format("{} tokens; model {} knows {}", file.vocabulary(), setup.shape.name,
                    setup.shape.vocabulary),
        "Prepare the data with the model's tokenizer, or set vocabulary in the model file?");
  return file;
}

shard::Mesh mesh_of(const Setup& setup) {
  return shard::mesh_of(setup.config.shard.strategy, setup.config.shard.group, setup.place.ranks_per_node,
                        setup.place.world, setup.place.rank);
}

checkpoint::Facts facts_of(const Setup& setup, const data::TokenFile& tokens, int lanes,
                           const kernels::Kernels& kernels) {
  const auto& c = setup.config;
  const char* const strategies[] = {"no_shard", "full_shard", "hybrid_shard"};
  const std::string text = config::to_toml(c);
  return {config::to_toml(setup.shape),
          setup.place.world,
          strategies[static_cast<int>(c.shard.strategy)],
          numerics_identity(c, lanes, kernels.identity()),
          fmt::format("{} seed {}", tokens.identity(), c.data.shuffle_seed),
          c.train.seed,
          checkpoint::digest_text(hash_name(text.data(), text.size()))};
}

}  // namespace

Trainer::Trainer(const Setup& setup, int threads, comm::Communicator& world, control::RankLink& link)
    : setup_(setup),
      world_(world),
      link_(link),
      tokens_(open_tokens(setup)),
      sampler_(tokens_.size(), setup.config.train.sequence, setup.config.data.shuffle_seed),
      layout_(shard::layout_of(setup.shape, mesh_of(setup))),
      lanes_(setup.config.train.leaves, setup.config.train.lanes, layout_.mesh.replicas, layout_.mesh.group),
      shard_group_(world.split(layout_.mesh.replica(), layout_.mesh.member())),
      replicas_(world.split(layout_.mesh.member(), layout_.mesh.replica())),
      kernels_(kernels::make_cpu_kernels(threads)),
      weights_(layout_, lanes_, *shard_group_, *replicas_, *kernels_, stream_, arena_),
      model_weights_(weights_),
      adamw_(layout_, config::tensors_of(setup.shape), *kernels_, stream_, arena_),
      transformer_(setup.shape, setup.config.train.micro_batch, setup.config.train.sequence, *kernels_,
                   stream_, arena_),
      leaf_tokens_(static_cast<std::size_t>(setup.config.train.micro_batch) *
                   static_cast<std::size_t>(setup.config.train.sequence + 1)),
      facts_(facts_of(setup, tokens_, lanes_.lanes(), *kernels_)) {
  require_one_identity(world, facts_.numerics);
  arena_.commit();
  views_ = views_of(setup.shape, layout_, weights_.parameters(), adamw_.exp_avg(), adamw_.exp_avg_sq());
  if (tokens_.vocabulary() < setup.shape.vocabulary && world.rank() == 0)
    log::warn("the token file uses {} of the model's {} tokens", tokens_.vocabulary(),
              setup.shape.vocabulary);
  transformer_.on_progress([this](model::Phase phase, int) {
    progress(phase == model::Phase::forward ? control::Phase::forward : control::Phase::backward);
  });
  if (setup.place.agent) {
    generation_ = {setup.place.agent->epoch, setup.place.agent->attempt};
  } else {
    std::uint64_t attempt[] = {
        world.rank() == 0 ? static_cast<std::uint64_t>(checkpoint::next_attempt(setup.dir.checkpoints()))
                          : 0};
    world.all_reduce(attempt, comm::Scalar::max);
    generation_ = {0, static_cast<int>(attempt[0])};
  }
}

control::FinalState Trainer::run() {
  restore_or_initialize();
  if (world_.rank() == 0) metrics_.emplace(setup_.dir.metrics(), point_.step, generation_.attempt);
  Saver saver(setup_.dir, setup_.config.checkpoint, views_, facts_, generation_, world_, link_);
  while (point_.step < setup_.config.train.steps) {
    report(step());
    digest_.clear();
    if (save_is_due()) digest_ = saver.save(point_).text();
    if (point_.step == setup_.config.train.steps && !saver.wait_durable())
      throw Error(
          Exit::runtime,
          fmt::format("training is done, but its last state (step {}) could not be saved", point_.step),
          saver.why(), "Make room and start the run again: it goes on from the last checkpoint");
  }
  progress(control::Phase::finishing);
  return {point_.step, point_.tokens, metrics_ ? metrics_->last_loss().value_or(0.0) : 0.0, digest_};
}

void Trainer::restore_or_initialize() {
  progress(control::Phase::restoring);
  const RestoreOrder order{setup_.config.run.resume, setup_.place.agent && setup_.place.agent->attempt > 1};
  const RestoredFrom from = restore(setup_.dir, order, views_, facts_, world_);
  if (from.fresh) initialize_weights();
  point_ = from.point;
  digest_ = digest_state(views_.owned, world_).text();
  if (world_.rank() == 0)
    log::info("{} step {}, state {}", from.fresh ? "starting fresh from" : "resuming from the checkpoint of",
              point_.step, digest_);
  link_.restored({point_.step, from.fresh ? "fresh" : "shared", digest_, from.note});
}

void Trainer::initialize_weights() {
  const auto specs = config::tensors_of(setup_.shape);
  for (const shard::Piece& piece : layout_.held) {
    const std::span<float> values(weights_.parameters() + piece.offset,
                                  static_cast<std::size_t>(piece.count));
    model::initial_weights(setup_.shape, specs[static_cast<std::size_t>(piece.tensor)],
                           setup_.config.train.seed, piece.first, values);
    std::fill_n(adamw_.exp_avg() + piece.offset, piece.count,
                0.f);  // a load that failed may have left something
    std::fill_n(adamw_.exp_avg_sq() + piece.offset, piece.count, 0.f);
  }
}

StepMetrics Trainer::step() {
  const auto start = Clock::now();
  const auto& train = setup_.config.train;
  const int replica = layout_.mesh.replica();
  Totals totals;

  // Each leaf: forward and backward of one micro-batch; its gradient is folded into the lanes unit by unit.
  weights_.begin_step();
  for (int i = 0; i < lanes_.micro_steps(replica); ++i) {
    progress(control::Phase::data);
    const std::int64_t leaf = lanes_.leaf(replica, i, layout_.mesh.member());
    data::read_leaf(tokens_, sampler_, point_.samples + leaf * train.micro_batch, train.micro_batch,
                    leaf_tokens_);
    weights_.begin_micro_step(i);
    const model::LeafLoss loss = transformer_.leaf(model_weights_, leaf_tokens_);
    totals.loss.add(loss.sum);
    totals.valid += loss.valid;
  }
  progress(control::Phase::collective);
  weights_.finish_step();
  totals.squares = adamw_.squares(weights_.gradients());
  totals.all_reduce(world_);

  // One rank decides; the others take its bits.
  optim::StepDecision decision =
      optim::decide(setup_.config.optim, point_.step, train.steps, totals.squares.value(), totals.valid);
  world_.broadcast(std::as_writable_bytes(std::span(&decision, 1)), 0);
  const double loss = totals.valid > 0 ? totals.loss.value() / static_cast<double>(totals.valid) : 0.0;
  if (!std::isfinite(decision.gradient_norm) || !std::isfinite(loss))
    throw Error(Exit::no_requeue, fmt::format("step {} diverged", point_.step + 1),
                fmt::format("loss {}, gradient norm {}; the same step would do so again", loss,
                            decision.gradient_norm),
                "Lower optim.lr, or set optim.clip_norm?");
  progress(control::Phase::optimizer);
  adamw_.update(weights_.parameters(), weights_.gradients(), decision);

  const std::int64_t samples = std::int64_t{train.leaves} * train.micro_batch,
                     tokens = samples * train.sequence;
  point_ = {point_.step + 1, point_.tokens + tokens, point_.samples + samples};
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  seconds_in_steps_ += seconds;
  return {point_.step, loss,          decision.gradient_norm,
          decision.lr, point_.tokens, static_cast<double>(tokens) / seconds,
          seconds};
}

void Trainer::Totals::all_reduce(comm::Communicator& world) {
  constexpr std::size_t limbs = std::tuple_size_v<tensor::ExactSum::Words>;
  std::array<std::uint64_t, 2 * limbs + 1> words{};
  std::ranges::copy(loss.words(), words.begin());
  std::ranges::copy(squares.words(), words.begin() + limbs);
  words.back() = static_cast<std::uint64_t>(valid);
  world.all_reduce(words, comm::Scalar::sum);
  tensor::ExactSum::Words part;
  std::copy_n(words.begin(), limbs, part.begin());
  loss = tensor::ExactSum::from_words(part);
  std::copy_n(words.begin() + limbs, limbs, part.begin());
  squares = tensor::ExactSum::from_words(part);
  valid = static_cast<std::int64_t>(words.back());
}

bool Trainer::save_is_due() const {
  const int every = setup_.config.checkpoint.every;
  return point_.step == setup_.config.train.steps || (every > 0 && point_.step % every == 0);
}

void Trainer::report(const StepMetrics& m) {
  if (!metrics_) return;
  metrics_->append(m);
  constexpr auto between_lines = std::chrono::seconds(2);
  if (Clock::now() - last_line_ < between_lines && m.step != setup_.config.train.steps) return;
  last_line_ = Clock::now();
  log::info("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s", m.step,
            setup_.config.train.steps, m.loss, m.gradient_norm, m.lr, m.tokens_per_s);
}

}  // namespace holdfast::train
