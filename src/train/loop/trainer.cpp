// The loop over steps: orders, a step, what the guard finds in it, saves, and the end of the run.
#include "src/train/loop/trainer.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "src/base/allocations.hpp"
#include "src/base/clock.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"
#include "src/config/bind.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/restore/earlier_settings.hpp"
#include "src/train/restore/restore_context.hpp"
#include "src/train/state/state_digest.hpp"

namespace holdfast::train {
namespace {

checkpoint::Facts facts_of(const Setup& setup, const data::Samples& samples, const Engine& engine) {
  const auto& c = setup.config;
  const std::string text = config::to_toml(c);
  std::string model = config::to_toml(setup.shape);
  if (setup.shape.adapters.any())
    model += config::to_toml(config::AdapterFacts{c.lora, engine.base().path, engine.base().digest});
  return {std::move(model),
          setup.place.world,
          config::name_of(c.shard.strategy),
          engine.numerics(),
          samples.identity(),
          c.train.seed,
          checkpoint::digest_text(hash_name(text.data(), text.size()))};
}

/// No longer than half the time that ranks wait for each other: those that have read theirs wait for the one
/// that tries again.
checkpoint::Patience patience_of(const Setup& setup, control::RankLink& link, std::int64_t step) {
  const auto& c = setup.config;
  const int limit_s =
      std::min(c.checkpoint.read_patience_s, (2 * c.supervise.step_s + c.checkpoint.commit_s) / 2);
  return {std::chrono::seconds(limit_s), [&link, step, limit_s](const Error& why, bool first) {
            link.progress(step, control::Phase::restoring);  // it moves, and does not hang
            if (first) log::warn("{}: trying again for up to {} s", why.what(), limit_s);
          }};
}

/// Under an agent, what it says; in bare mode one more than what the directory has seen. Collective.
checkpoint::Generation generation_of(const Setup& setup, comm::Communicator& world, control::RankLink& link) {
  if (setup.place.agent) return {setup.place.agent->term, setup.place.agent->attempt};
  std::uint64_t attempt[] = {0};
  together(world, world.rank() == 0, [&] {
    attempt[0] = static_cast<std::uint64_t>(checkpoint::patiently(patience_of(setup, link, 0), [&] {
      return checkpoint::next_attempt(setup.dir.checkpoints(),
                                      checkpoint::recorded_attempt(setup.dir.durable()));
    }));
  });
  world.all_reduce(attempt, comm::Scalar::max);
  return {0, static_cast<int>(attempt[0])};
}

/// Resident memory of this process, 0 where it cannot be asked for.
double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0;
  if (!(statm >> pages >> pages)) return 0;
  return static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

constexpr std::size_t max_records = 64 << 20;  // bytes that wait: some 150,000 steps
constexpr Millis records_patience{10000};      // before a checkpoint, and at the end

Saver::Parts saver_parts(const Setup& setup, const StateViews& views, const checkpoint::Facts& facts,
                         checkpoint::Generation generation, const std::optional<RankInjector>& injector,
                         const std::optional<BestMarks>& best_marks, WriteQueue& records) {
  checkpoint::WriteOptions options;
  options.read_back = setup.config.checkpoint.read_back;
  const auto writer =
      std::make_shared<checkpoint::ShardWriter>(setup.dir.checkpoints(), setup.place.rank, generation,
                                                views.owned.tensors, views.writers, facts, options);
  WriteShard write = [writer](const auto& point, auto pieces) {
    std::string vote = writer->write(point, pieces);
    return Written{std::move(vote), writer->last_cost()};
  };
  if (injector) write = injector->wrap(std::move(write));
  if (best_marks) write = best_marks->wrap(std::move(write));
  return {std::move(write), views.owned, [&records] { records.flush(records_patience); }};
}

/// What is known of failures before any was seen: of the nodes, by the cluster file, and how many of them the
/// levels below the shared one survive.
FailureRate expected_failures(const Setup& setup, bool local, int replicas) {
  const auto& c = setup.config;
  double node_h = usual_node_mttf_h;
  if (setup.cluster && setup.cluster->node_mttf_hours > 0) node_h = setup.cluster->node_mttf_hours;
  const bool elsewhere =
      local && c.cluster.nodes > 1 && (replicas > 1 || c.checkpoint.partner == config::Partner::automatic);
  constexpr double hour = 3600;
  return FailureRate(node_h * hour / std::max(1, c.cluster.nodes), elsewhere ? share_beyond_peers : 1);
}

}  // namespace

Trainer::Trainer(const Setup& setup, device::Device& device, comm::Communicator& world,
                 const flight::FlightRecorder* recorder, control::RankLink& link)
    : setup_(setup),
      world_(world),
      link_(link),
      data_(open_token_data(setup, world)),
      engine_(setup, data_.samples, device, world),
      views_(engine_.views()),
      facts_(facts_of(setup, data_.samples, engine_)),
      generation_(generation_of(setup, world, link)),
      silent_(setup, engine_, world),
      injector_(setup.config.drill.allowed ? std::optional<RankInjector>(std::in_place, link, engine_)
                                           : std::nullopt),
      best_marks_(setup.config.eval.keep_best && world.rank() == 0
                      ? std::optional<BestMarks>(setup.dir.checkpoints())
                      : std::nullopt),
      records_(max_records, records_patience),
      saver_(setup.dir, setup.config.checkpoint, generation_,
             saver_parts(setup, views_, facts_, generation_, injector_, best_marks_, records_),
             engine_.snapshots(), world, link),
      account_(engine_, scale_of(setup, device, data_.names),
               StepTrace(setup.config.trace, setup.dir.path / "trace", world.rank(), engine_.profile(),
                         recorder, records_),
               world, link) {
  if (world.rank() != 0) return;
  log::info("each rank plans {} bytes of memory ({}) and sends {} bytes per step ({})",
            engine_.memory().planned, size_text(engine_.memory().planned), engine_.planned_wire_bytes(),
            size_text(engine_.planned_wire_bytes()));
  if (setup.shape.adapters.any())
    log::info("adapters of rank {}: {} of {} parameters are trained; the base is {}",
              setup.shape.adapters.rank, config::trained_parameters_of(setup.shape),
              config::parameters_of(setup.shape) + config::trained_parameters_of(setup.shape),
              engine_.base().digest);
  if (const std::string checks = silent_.describe(); !checks.empty())
    log::info("silent data corruption: {}", checks);
}

control::FinalState Trainer::run() {
  const std::int64_t steps = setup_.config.train.steps;
  if (!link_.supervised()) signals_.emplace();
  const bool saved = restore_or_initialize();
  if (world_.rank() == 0) {
    metrics_.emplace(setup_.dir.metrics(), point_.step, generation_.attempt, records_);
    FailureRate rate = expected_failures(setup_, engine_.local() != nullptr, engine_.layout().mesh.replicas);
    rate.lived(metrics_->seconds_before());
    rate.failed(std::max(0, generation_.attempt - 1));
    policy_.emplace(setup_.config.checkpoint, steps, point_.step, rate);
  }
  if (setup_.config.drill.allowed) hold_.emplace(setup_.dir, steps);
  const bool trains = !is_over();
  while (!is_over()) {
    if (hold_) hold_->before(point_.step + 1, [this] { progress(control::Phase::data); });
    StepOrders orders;
    auto done = step(orders);
    if (done) {
      say_memory();
      report(*done);
      learn(*done);
    } else if (orders.stop) {
      keep(false, orders);
    }
    if (orders.stop && !is_over()) stop(orders);
    // After a step that the guard skipped nothing was saved, whatever its orders were.
    if (orders.pause && !is_over()) hold(orders.save && done.has_value());
  }
  if (!trains && !saved) {  // the run ended here before, but no checkpoint says so
    StepOrders orders;
    orders.save = orders.must = true;
    keep(false, orders);
  }
  if (trains || !saved) {
    progress(control::Phase::finishing);
    check_replicas();
    digest_ = digest_state(views_.owned, engine_.window(), world_).text();
    if (!saver_.wait_durable())
      throw Error(
          Exit::runtime,
          fmt::format("training is done, but its last state (step {}) could not be saved", point_.step),
          saver_.why(), "Make room and start the run again: it goes on from the last checkpoint");
  }
  progress(control::Phase::finishing);
  if (best_marks_) records_.add(0, [marks = *best_marks_] { marks.finish(); });
  if (!records_.flush(records_patience))
    log::warn("the last metrics or traces are not written: {} does not answer", setup_.dir.path.string());
  return {point_.step, point_.tokens, metrics_ ? metrics_->last_loss().value_or(0.0) : 0.0, digest_};
}

bool Trainer::restore_or_initialize() {
  progress(control::Phase::restoring);
  const RestoreOrder order{
      setup_.config.run.resume,
      setup_.place.agent && setup_.place.agent->attempt > 1,
      setup_.config.run.other_numerics == "continue",
      false,
      setup_.place.agent ? setup_.place.agent->from.trusted_step : -1,
      setup_.place.agent ? std::optional(setup_.place.agent->from.durable_steps) : std::nullopt};
  const RestoreContext with = context();
  engine_.make_room();
  const RestoredFrom from = restore(setup_.dir, order, views_, facts_, world_, with);
  begin_at(from);
  say_changed_course(from);
  if (Snapshots* const local = engine_.local()) {
    partners_ = make_partner_copies(setup_, engine_.local_run(), *local, world_, with.open_exchange);
    keep(true, {});  // a node that is lost in the first step takes nothing along
  }
  if (world_.rank() == 0)
    log::info("{} step {}, state {}{}",
              from.fresh               ? "training starts at"
              : from.level == "shared" ? "training resumes from the checkpoint of"
                                       : "training resumes from snapshots of",
              point_.step, digest_, text_of(from));
  link_.restored({point_.step, from.level, digest_, from.note});
  return from.fresh || from.level == name_of(Level::shared);
}

void Trainer::say_changed_course(const RestoredFrom& from) const {
  if (world_.rank() != 0 || from.checkpoint.empty()) return;
  const auto earlier = settings_of_checkpoint(from.checkpoint, from.term, setup_);
  const std::string changed = earlier ? config::changed_course(*earlier, setup_.config) : "";
  if (!changed.empty())
    log::warn("the run goes on with other settings than the run of its checkpoint had: {}", changed);
}

void Trainer::begin_at(const RestoredFrom& from) {
  if (from.fresh) engine_.initialize();
  engine_.publish();
  point_ = from.point;
  losses_ = loss_memory_from_text(point_.detector);
  if (best_marks_) best_marks_->begin_at(point_.step);
  engine_.set_scaling(point_.scaling);
  digest_ = from.fresh ? digest_state(views_.owned, engine_.window(), world_).text() : from.digest;
  silent_.begin_at(point_.step);
}

RestoreContext Trainer::context() {
  RestoreContext out = restore_context(setup_, engine_, world_);
  out.patience = patience_of(setup_, link_, point_.step);
  return out;
}

void Trainer::roll_back(std::int64_t next_sample, std::int64_t durable) {
  const std::uint64_t skips = losses_.guard.skips;
  progress(control::Phase::restoring);
  RestoreOrder order{setup_.config.run.resume, true, true, true};
  // What was durable when the attempt began may have been removed since.
  if (setup_.place.agent)
    order.durable = durable < 0 ? setup_.place.agent->from.durable_steps : std::vector<std::int64_t>{durable};
  engine_.make_room();
  const RestoredFrom from = restore(setup_.dir, order, views_, facts_, world_, context());
  begin_at(from);
  point_.samples = next_sample;
  losses_.guard.skips = skips;
  if (world_.rank() == 0) {
    log::warn("the run was rolled back to step {}, state {}, and goes on with sample {}", point_.step,
              digest_, next_sample);
    metrics_->roll_back(point_.step);
  }
}

std::optional<StepMetrics> Trainer::step(StepOrders& orders) {
  const auto& train = setup_.config.train;
  const std::int64_t samples = train.global_batch, tokens = samples * train.sequence;
  before_step();

  engine_.begin_step(moved_);
  for (int i = 0; i < engine_.micro_steps(); ++i) {
    const model::Batch batch = engine_.load(point_.samples, i);
    engine_.forward_backward(batch, i);
  }
  const MicroBatchSums sums = engine_.reduce();
  if (!after_gradients(sums)) return std::nullopt;

  const optim::StepUpdate update = decide(sums, orders);
  if (!accept(sums, update)) return std::nullopt;

  before_update();
  engine_.update(update);
  point_ = {point_.step + 1, point_.tokens + tokens, point_.samples + samples, {}, {}};
  StepMetrics metrics = account_.end(point_, tokens, sums, update);
  stalled_s_ += metrics.save_stall_s;
  if (evaluation_is_due()) {
    metrics.held_out = evaluate();
    judge(metrics.held_out.front().second, orders);
  }

  const Snapshots* const local = engine_.local();
  keep(local && point_.step % local->every() == 0, orders);
  if (orders.save && policy_) metrics.saving = policy_->in_metrics(saver_.totals());
  return metrics;
}

void Trainer::before_step() {
  account_.begin(point_.step);
  silent_.begin_step(point_.step + 1);
  if (injector_) injector_->begin_step(setup_.config.verify.micro_batch_every > 0);
}

bool Trainer::after_gradients(const MicroBatchSums& sums) {
  account_.reduced();
  check_replicas();
  const bool finite = std::isfinite(sums.mean_loss()) && std::isfinite(sums.squares.value());
  not_finite_says_.clear();
  if (!finite && !look_at_not_finite()) return false;
  if (const auto doubt =
          silent_.compare_micro_batch(point_, [this](control::Phase phase) { progress(phase); }))
    distrust(*doubt);
  account_.leave_out_checks();
  return true;
}

bool Trainer::look_at_not_finite() {
  const std::int64_t step = point_.step + 1;
  const SilentCheck::NotFinite found =
      silent_.look_at_not_finite(point_, [this](control::Phase phase) { progress(phase); });
  if (found.doubt) distrust(*found.doubt);
  not_finite_says_ = found.says;
  if (!found.gone) return true;
  if (repeated_step_ == step) {
    not_finite_says_ += ", and the whole step was computed twice";
    return true;
  }
  repeated_step_ = step;
  if (world_.rank() == 0)
    log::warn(
        "step {}: the loss or the gradient is not finite, but {}: no rank can be accused, and the step is "
        "computed again",
        step, found.says);
  return false;
}

void Trainer::before_update() {
  if (injector_) injector_->before_update();
  progress(control::Phase::optimizer);
}

optim::StepUpdate Trainer::decide(const MicroBatchSums& sums, StepOrders& orders) {
  if (policy_) orders = orders_of_this_step();
  const optim::StepUpdate update = engine_.agree_on_update(sums, point_.step, orders);
  saver_.hand_over();
  return update;
}

bool Trainer::accept(const MicroBatchSums& sums, const optim::StepUpdate& update) {
  if (!update.update) return true;
  const double loss = sums.mean_loss();
  const optim::GuardFinding finding =
      optim::assess(losses_.guard, setup_.config.guard, loss, update.gradient_norm);
  losses_.guard = optim::after(losses_.guard, finding, loss, update.gradient_norm);
  if (!finding.text.empty() && world_.rank() == 0) log::warn("step {}: {}", point_.step + 1, finding.text);

  const std::int64_t next_sample = point_.samples + setup_.config.train.global_batch;
  using Action = optim::GuardFinding::Action;
  switch (finding.action) {
    case Action::ok:
    case Action::report:
      return true;
    case Action::skip:
      point_.samples = next_sample;
      return false;
    case Action::rollback: {
      // The newest checkpoint is the same however fast the commit is.
      const bool durable = saver_.wait_durable();
      if (saver_.busy())  // a restore takes the buffers, and needs the same storage
        throw Error(Exit::transient, fmt::format("step {} cannot be rolled back", point_.step + 1),
                    "the shared storage does not answer", "Start the run again when it does?");
      roll_back(next_sample, durable ? saver_.newest_step() : -1);
      return false;
    }
    case Action::stop:
      break;
  }
  saver_.wait_durable();  // what was begun is what the next run begins with
  throw Error(
      Exit::no_requeue, fmt::format("step {} diverged", point_.step + 1),
      finding.text + "; " + (not_finite_says_.empty() ? "the same step would do so again" : not_finite_says_),
      "Lower optim.lr, set optim.clip_norm, or see [guard] in config keys?");
}

void Trainer::keep(bool snapshot, const StepOrders& orders) {
  if (!snapshot && !orders.save) return;
  point_.detector = to_text(losses_);
  point_.scaling = engine_.scaling();
  if (!engine_.snapshots().ready()) {
    progress(control::Phase::finishing);  // how long that takes says nothing of a rank
    engine_.snapshots().get_ready();
  }
  if (engine_.local()) engine_.snapshots().begin(point_);  // also of a save: all ranks have one of this step
  if (!orders.save) return;
  silent_.saving(point_.step);
  saver_.begin(point_, orders.must, std::exchange(stalled_s_, 0));
  if (policy_) policy_->begun(point_.step);
}

bool Trainer::is_over() const {
  return point_.step >= setup_.config.train.steps || optim::ends_early(losses_.best, setup_.config.eval);
}

void Trainer::judge(double held_out_loss, StepOrders& orders) {
  const config::Eval& eval = setup_.config.eval;
  if (eval.patience == 0 && !eval.keep_best) return;
  losses_.best = optim::after(losses_.best, eval, point_.step, held_out_loss);
  const bool ends = optim::ends_early(losses_.best, eval);
  if (ends || (eval.keep_best && losses_.best.step == point_.step)) orders.save = orders.must = true;
  if (ends && world_.rank() == 0)
    log::info(
        "the run ends early, at step {}: in {} evaluations no held-out loss was below {:.4f}{}; the best is "
        "{:.4f}, of step {}",
        point_.step, losses_.best.waited, losses_.best.to_beat,
        eval.min_delta > 0 ? fmt::format(" by more than {}", eval.min_delta) : "", losses_.best.loss,
        losses_.best.step);
}

bool Trainer::evaluation_is_due() const {
  const std::int64_t step = point_.step;
  return !data_.held_out.empty() &&
         (step % setup_.config.eval.every == 0 || step == setup_.config.train.steps);
}

std::vector<std::pair<std::string, double>> Trainer::evaluate() {
  std::vector<std::pair<std::string, double>> out;
  for (const HeldOut& held_out : data_.held_out) {
    const MicroBatchSums sums = engine_.evaluate(held_out.file, setup_.config.eval.samples,
                                                 [this](control::Phase phase) { progress(phase); });
    out.emplace_back(held_out.name, sums.mean_loss());
    if (world_.rank() == 0)
      log::info("step {}: held-out loss {:.4f} over {} tokens{}", point_.step, sums.mean_loss(), sums.valid,
                data_.held_out.size() > 1 ? " of " + held_out.name : "");
  }
  return out;
}

/// Once, after the first step: then everything that was planned is in use.
void Trainer::say_memory() {
  if (std::exchange(memory_was_said_, true) || world_.rank() != 0) return;
  const auto memory = engine_.memory();
  log::info("this rank uses {} bytes of memory of {} planned; its process with all libraries has {}",
            memory.used, memory.planned, size_text(resident_bytes()));
}

/// What the step says about the cost of saving.
void Trainer::learn(const StepMetrics& m) {
  if (policy_ && policy_->measured(m.step_s - m.save_stall_s, saver_.totals()))
    log::info("checkpoints {}", policy_->tuner().text());
}

void Trainer::report(const StepMetrics& m) {
  if (!metrics_) return;
  metrics_->append(m);
  constexpr auto between_lines = std::chrono::seconds(2);
  if (Clock::now() - last_line_ < between_lines && !is_over()) return;
  last_line_ = Clock::now();
  log::info("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s", m.step,
            setup_.config.train.steps, m.loss, m.gradient_norm, m.lr, m.tokens_per_s);
}

}  // namespace holdfast::train
