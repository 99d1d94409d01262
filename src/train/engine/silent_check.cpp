// In every comparison each rank brings one number at a time, a hash or a flag, and numbers_of_all() tells all
// to all. The functions of accuse.hpp judge from these numbers alone, so every rank comes to the same verdict
// without further messages.
//
// In a step, begin_step() chooses the micro-batch to watch, the same place on every rank. After the
// gradients, compare_replicas() compares the state if that is due: with the digests of its snapshot where
// there is one, else of memory. Then look_at_not_finite(), for a step that is not finite, and
// compare_micro_batch() compute again. Before they accuse a rank of wrong computing, both compare the states
// where replicas hold the same, since other weights explain other gradients. A Doubt names the newest step
// that can be trusted; what to do about it is the trainer's business. A restored state counts as one on which
// the replicas agreed (begin_at).
#include "src/train/engine/silent_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/train/local/local_identity.hpp"
#include "src/train/local/offers.hpp"

namespace holdfast::train {

SilentCheck::SilentCheck(const Setup& setup, Engine& engine, comm::Communicator& world)
    : setup_(setup),
      engine_(engine),
      world_(world),
      digests_(engine.views().held.pieces.size()),
      numbers_(world.size()),
      owners_(numbers_),
      others_(numbers_) {
  const LocalRun& run = engine.local_run();
  for (int rank = 0; rank < world.size(); ++rank) kind_of_.push_back(kind_of(run, rank));
  comparable_ = kinds_of(run) < world.size();
}

std::string SilentCheck::describe() const {
  const auto& verify = setup_.config.verify;
  std::string out;
  if (verify.replicas_every > 0)
    out = comparable_ ? fmt::format("replicas are compared every {} steps and before every save",
                                    verify.replicas_every)
                      : "no replica holds the same state, so none is compared";
  if (verify.micro_batch_every > 0)
    out += fmt::format("{}every {} steps one micro-batch of each rank is computed again {}",
                       out.empty() ? "" : "; ", verify.micro_batch_every,
                       world_.size() > setup_.place.ranks_per_node ? "on another node"
                       : world_.size() > 1                         ? "by another rank"
                                                                   : "by itself");
  return out;
}

void SilentCheck::begin_at(std::int64_t step) {
  compared_step_ = step;
  // A new process goes by what the processes before it have compared: the restored state itself may be newer.
  micro_batch_step_ = micro_batch_step_ < 0
                          ? vouched_by_micro_batch(step, setup_.config.verify.micro_batch_every)
                          : std::min(micro_batch_step_, step);
}

void SilentCheck::begin_step(std::int64_t step) {
  step_ = step;
  chosen_.reset();
  const int every = setup_.config.verify.micro_batch_every;
  if (every == 0 || step % every != 0) return;
  chosen_ = mix64(setup_.config.train.seed ^ mix64(static_cast<std::uint64_t>(step)));
  engine_.watch_micro_batch(*chosen_);
}

bool SilentCheck::due(std::int64_t step) const {
  const int every = setup_.config.verify.replicas_every;
  return comparable_ && every > 0 && step != compared_step_ && (step % every == 0 || step == saved_step_);
}

std::span<const std::uint64_t> SilentCheck::numbers_of_all(std::uint64_t mine) {
  std::ranges::fill(numbers_, 0);
  numbers_[world_.rank()] = mine;
  world_.all_reduce(numbers_, comm::Scalar::sum);
  return numbers_;
}

std::uint64_t SilentCheck::seal_of_held() {
  engine_.window().digests(engine_.views().held, digests_);
  return seal_of(digests_);
}

bool SilentCheck::contradicts_its_seals() {
  Snapshots* const local = engine_.local();
  if (local == nullptr) return false;
  for (int buffer = 0; buffer < local->file().buffers(); ++buffer)
    if (const auto what = local->file().sealed(buffer);
        what && checkpoint::piece_digests(local->view(buffer)) != what->digests)
      return true;
  return false;
}

std::optional<Doubt> SilentCheck::compare_replicas(const checkpoint::RunPoint& point) {
  if (!due(point.step)) return std::nullopt;
  // The digests that a snapshot was sealed with, where there is one of this state.
  if (Snapshots* const local = engine_.local()) {
    local->join();
    if (const auto seal = local->newest_seal(point.step, point.samples)) return compare(point.step, *seal);
  }
  return compare(point.step, seal_of_held());
}

std::optional<Doubt> SilentCheck::compare(std::int64_t step, std::uint64_t seal) {
  const auto all = numbers_of_all(seal);
  if (!replicas_differ(all, kind_of_)) {
    compared_step_ = step;
    return std::nullopt;
  }
  const std::vector<std::uint64_t> seals(all.begin(), all.end());
  const auto accused = accuse_replicas(seals, kind_of_, numbers_of_all(contradicts_its_seals() ? 1U : 0U));
  return Doubt{
      "replicas", accused, compared_step_,
      fmt::format("the replicas' states of step {} differ: {} may be wrong; they were equal at step {}", step,
                  ranks_text(accused), compared_step_)};
}

void SilentCheck::recompute(int distance, std::int64_t first_sample, const Engine::Progress& progress,
                            std::vector<std::uint64_t>& by_micro_batch) {
  const int world = world_.size(), owner = (world_.rank() + world - distance) % world;
  const std::uint64_t mine =
      engine_.recompute_micro_batch(first_sample, engine_.micro_batch_of(owner, *chosen_), progress).hash;
  const auto by_rank = numbers_of_all(mine);
  by_micro_batch.resize(world);
  for (int rank = 0; rank < world; ++rank) by_micro_batch[rank] = by_rank[(rank + distance) % world];
}

std::optional<Doubt> SilentCheck::compare_micro_batch(const checkpoint::RunPoint& point,
                                                      const Engine::Progress& progress) {
  if (!chosen_) return std::nullopt;
  const int world = world_.size(), distance = this->distance();
  std::ranges::copy(numbers_of_all(engine_.watched_hash()), owners_.begin());
  recompute(distance, point.samples, progress, others_);
  if (owners_ == others_) {
    micro_batch_step_ = step_ - 1;
    return std::nullopt;
  }
  // Other weights give other gradients: then the memory is wrong, and it is known whose.
  if (comparable_)
    if (auto doubt = compare(point.step, seal_of_held())) return doubt;
  std::vector<std::uint64_t> owner_again, other_again, third;
  recompute(0, point.samples, progress, owner_again);
  recompute(distance, point.samples, progress, other_again);
  if (const auto far = third_distance(world, setup_.place.ranks_per_node))
    recompute(*far, point.samples, progress, third);
  std::set<int> accused;
  std::vector<int> micro_batches;
  for (int rank = 0; rank < world; ++rank) {
    const std::size_t i = rank;
    if (owners_[i] == others_[i]) continue;
    micro_batches.push_back(rank);
    const MicroBatchBlame blame =
        accuse_micro_batch({owners_[i], others_[i], owner_again[i], other_again[i],
                            third.empty() ? std::nullopt : std::optional(third[i])});
    if (blame.owner) accused.insert(rank);
    if (blame.other) accused.insert((rank + distance) % world);
  }
  const std::vector<int> list(accused.begin(), accused.end());
  return Doubt{
      "micro_batch", list, micro_batch_step_,
      fmt::format("step {}: the gradient of a micro-batch of {} was another when it was computed again: {} "
                  "may compute wrong; the comparison held at step {}",
                  step_, ranks_text(micro_batches), ranks_text(list), micro_batch_step_)};
}

int SilentCheck::distance() const { return second_distance(world_.size(), setup_.place.ranks_per_node); }

SilentCheck::NotFinite SilentCheck::look_at_not_finite(const checkpoint::RunPoint& point,
                                                       const Engine::Progress& progress) {
  // Other weights give other gradients: then the memory is wrong, and it is known whose.
  if (comparable_)
    if (auto doubt = compare(point.step, seal_of_held())) return {std::move(doubt), false, ""};
  const std::size_t world = as_size(world_.size()), far = as_size(distance()), me = as_size(world_.rank());
  NotFiniteCounts counts;
  for (auto* of : {&counts.both, &counts.owner, &counts.other, &counts.loss}) of->resize(world);
  const auto found_of = [&](std::size_t owner, std::uint64_t micro_step) {
    const auto micro_batch = engine_.micro_batch_of(static_cast<int>(owner), micro_step);
    return std::uint64_t{engine_.recompute_micro_batch(point.samples, micro_batch, progress).finite ? 0U
                                                                                                    : 1U};
  };
  for (int i = 0; i < engine_.most_micro_steps(); ++i) {
    const auto micro_step = static_cast<std::uint64_t>(i);
    std::ranges::copy(numbers_of_all(found_of(me, micro_step)), owners_.begin());
    others_ = owners_;
    if (far > 0)
      std::ranges::copy(numbers_of_all(found_of((me + world - far) % world, micro_step)), others_.begin());
    for (std::size_t rank = 0; rank < world; ++rank) {
      const bool with_owner = owners_[rank] > 0, with_other = others_[(rank + far) % world] > 0;
      if (with_owner || with_other)
        ++(with_owner && with_other ? counts.both : with_owner ? counts.owner : counts.other)[rank];
    }
  }
  std::ranges::copy(numbers_of_all(engine_.own_loss_was_finite() ? 0U : 1U), counts.loss.begin());
  const NotFiniteBlame blame = accuse_not_finite(counts, distance());
  const char* const by = world > as_size(setup_.place.ranks_per_node) ? "another node"
                         : far > 0                                    ? "another rank"
                                                                      : "the same rank";
  if (blame.reproduced) return {{}, false, fmt::format("{} came to the same when it computed it again", by)};
  if (blame.accused.empty())
    return {{}, true, "each of its micro-batches was finite when it was computed again"};
  return {
      Doubt{"micro_batch", blame.accused, point.step,
            fmt::format("step {}: what {} computed is not finite, and was finite when {} computed it again: "
                        "{} may compute wrong; the state of step {} is not changed by it",
                        step_, ranks_text(blame.accused), by, ranks_text(blame.accused), point.step)},
      false, ""};
}

}  // namespace holdfast::train
