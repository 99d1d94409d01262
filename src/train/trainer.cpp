#include "src/train/trainer.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "checkpoint/catalog.hpp"
#include "src/base/allocations.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/bind.hpp"
#include "src/train/detector_text.hpp"

namespace holdfast::train {
namespace {

data::TokenFile open_tokens(const Setup& setup, const std::string& path) {
  auto file = data::TokenFile::open(path, std::int64_t{setup.config.train.sequence} + 1);
  if (file.vocabulary() > setup.shape.vocabulary)
    throw Error(Exit::usage, fmt::format("the token file {} has another vocabulary than the model", path),
                fmt::format("{} tokens; model {} knows {}", file.vocabulary(), setup.shape.name,
                            setup.shape.vocabulary),
                "Prepare the data with the model's tokenizer, or set vocabulary in the model file?");
  return file;
}

data::TokenFile open_training_tokens(const Setup& setup) {
  if (setup.config.data.tokens.empty())
    throw Error(Exit::usage, "there is no token file", "data.tokens is not set",
                "Make one with holdfast data prepare?");
  return open_tokens(setup, setup.config.data.tokens);
}

std::optional<data::TokenFile> open_held_out_tokens(const Setup& setup) {
  if (setup.config.eval.every == 0) return std::nullopt;
  return open_tokens(setup, setup.config.data.validation);
}

checkpoint::Facts facts_of(const Setup& setup, const data::TokenFile& tokens, const Engine& engine) {
  const auto& c = setup.config;
  const std::string text = config::to_toml(c);
  return {config::to_toml(setup.shape),
          setup.place.world,
          config::name_of(c.shard.strategy),
          engine.numerics(),
          fmt::format("{} seed {}", tokens.identity(), c.data.shuffle_seed),
          c.train.seed,
          checkpoint::digest_text(hash_name(text.data(), text.size()))};
}

/// Under an agent, what it says; in bare mode one more than what the directory has seen. Collective.
checkpoint::Generation generation_of(const Setup& setup, comm::Communicator& world) {
  if (setup.place.agent) return {setup.place.agent->epoch, setup.place.agent->attempt};
  std::uint64_t attempt[] = {
      world.rank() == 0 ? static_cast<std::uint64_t>(checkpoint::next_attempt(setup.dir.checkpoints())) : 0};
  world.all_reduce(attempt, comm::Scalar::max);
  return {0, static_cast<int>(attempt[0])};
}

/// Resident memory of this process, 0 where it cannot be asked for.
double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0;
  if (!(statm >> pages >> pages)) return 0;
  return static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(const Setup& setup, device::Device& device, comm::Communicator& world,
                 const flight::FlightRecorder* recorder, control::RankLink& link)
    : setup_(setup),
      world_(world),
      link_(link),
      tokens_(open_training_tokens(setup)),
      held_out_(open_held_out_tokens(setup)),
      engine_(setup, tokens_, device, world),
      views_(engine_.views()),
      facts_(facts_of(setup, tokens_, engine_)),
      generation_(generation_of(setup, world)),
      trace_(setup.config.trace, setup.dir.path / "trace", world.rank(), engine_.profile(), recorder) {
  if (world.rank() != 0) return;
  if (tokens_.vocabulary() < setup.shape.vocabulary)
    log::warn("the token file uses {} of the model's {} tokens", tokens_.vocabulary(),
              setup.shape.vocabulary);
  log::info("planned per rank: {} bytes of memory, {} bytes sent per step", engine_.memory().planned,
            engine_.planned_wire_bytes());
}

control::FinalState Trainer::run() {
  restore_or_initialize();
  if (world_.rank() == 0) metrics_.emplace(setup_.dir.metrics(), point_.step, generation_.attempt);
  Saver saver(setup_.dir, setup_.config.checkpoint, views_, facts_, generation_, world_, link_);
  while (point_.step < setup_.config.train.steps) {
    auto done = step(saver);
    if (!done) continue;
    done->held_out_loss = held_out_loss_if_due();
    say_memory();
    report(*done);
    digest_.clear();
    if (save_is_due()) {
      point_.detector = to_text(guard_);
      point_.scaling = engine_.scaling();
      engine_.fetch();
      digest_ = saver.save(point_).text();
    }
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
  const RestoreOrder order{setup_.config.run.resume, setup_.place.agent && setup_.place.agent->attempt > 1,
                           setup_.config.run.other_numerics == "continue"};
  const RestoredFrom from = restore(setup_.dir, order, views_, facts_, world_);
  begin_at(from);
  if (world_.rank() == 0)
    log::info("{} step {}, state {}", from.fresh ? "starting fresh from" : "resuming from the checkpoint of",
              point_.step, digest_);
  link_.restored({point_.step, from.fresh ? "fresh" : "shared", digest_, from.note});
}

void Trainer::begin_at(const RestoredFrom& from) {
  if (from.fresh) engine_.initialize();
  engine_.publish();
  point_ = from.point;
  guard_ = guard_from_text(point_.detector);
  engine_.set_scaling(point_.scaling);
  digest_ = digest_state(views_.owned, world_).text();
}

void Trainer::roll_back(std::int64_t next_sample) {
  const std::uint64_t skips = guard_.skips;
  progress(control::Phase::restoring);
  const RestoredFrom from =
      restore(setup_.dir, {setup_.config.run.resume, true, true}, views_, facts_, world_);
  begin_at(from);
  point_.samples = next_sample;
  guard_.skips = skips;
  if (world_.rank() == 0) {
    log::warn("rolled back to step {}, state {}; on from sample {}", point_.step, digest_, next_sample);
    metrics_.emplace(setup_.dir.metrics(), point_.step, generation_.attempt);
  }
}

std::optional<StepMetrics> Trainer::step(Saver& saver) {
  const auto start = Clock::now();
  const auto& train = setup_.config.train;
  const std::int64_t samples = std::int64_t{train.leaves} * train.micro_batch,
                     tokens = samples * train.sequence;
  trace_.begin(point_.step);
  const Allocations counted;

  const LeafSums sums = engine_.gradients(point_.samples, [this](control::Phase phase) { progress(phase); });
  const std::int64_t sent = engine_.wire_bytes(), sent_by_step = sent - std::exchange(wire_bytes_, sent);
  const optim::StepDecision decision = engine_.decide(sums, point_.step);
  const double loss = sums.mean_loss();
  const optim::Verdict verdict =
      decision.update ? optim::verdict(guard_, setup_.config.guard, loss, decision.gradient_norm)
                      : optim::Verdict{};
  if (decision.update) guard_ = optim::after(guard_, verdict, loss, decision.gradient_norm);
  if (!verdict.text.empty() && world_.rank() == 0) log::warn("step {}: {}", point_.step + 1, verdict.text);
  using Action = optim::Verdict::Action;
  switch (verdict.action) {
    case Action::stop:
      throw Error(Exit::no_requeue, fmt::format("step {} diverged", point_.step + 1),
                  verdict.text + "; the same step would do so again",
                  "Lower optim.lr, set optim.clip_norm, or see [guard] in config keys?");
    case Action::skip:
      point_.samples += samples;
      return std::nullopt;
    case Action::rollback:
      saver.wait_durable();  // the newest checkpoint is the same however fast the commit is
      roll_back(point_.samples + samples);
      return std::nullopt;
    case Action::ok:
    case Action::report:
      break;
  }
  progress(control::Phase::optimizer);
  engine_.update(decision);
  point_ = {point_.step + 1, point_.tokens + tokens, point_.samples + samples, {}, {}};

  const double seconds = seconds_since(start);
  seconds_in_steps_ += seconds;
  const std::uint64_t allocations = counted.so_far();
  trace_.end(point_.step);
  return StepMetrics{point_.step, loss,          decision.gradient_norm,
                     decision.lr, point_.tokens, static_cast<double>(tokens) / seconds,
                     seconds,     allocations,   sent_by_step};
}

std::optional<double> Trainer::held_out_loss_if_due() {
  const auto& eval = setup_.config.eval;
  if (!held_out_ || (point_.step % eval.every != 0 && point_.step != setup_.config.train.steps))
    return std::nullopt;
  const LeafSums sums = engine_.evaluate(*held_out_, eval.samples);
  if (world_.rank() == 0)
    log::info("step {}: held-out loss {:.4f} over {} tokens", point_.step, sums.mean_loss(), sums.valid);
  return sums.mean_loss();
}

/// Once, after the first step: then everything that was planned is in use.
void Trainer::say_memory() {
  if (std::exchange(memory_was_said_, true) || world_.rank() != 0) return;
  const auto memory = engine_.memory();
  log::info("memory: {} bytes used of {} planned; the process with its libraries has {:.1f} MiB", memory.used,
            memory.planned, resident_mib());
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
