// Rules about what is computed.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "src/config/adapters.hpp"
#include "src/config/architecture.hpp"
#include "src/config/check_parts.hpp"
#include "src/config/mixture.hpp"
#include "src/config/optim_group.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {
namespace {

void check_eval(const Eval& e, const Data& d) {
  if (e.every > 0 && d.validation.empty())
    refuse("eval.every is set but there is nothing to evaluate on", "data.validation is empty",
           "Set data.validation to a token file, or eval.every to 0?");
  if (e.every == 0 && (e.patience > 0 || e.keep_best))
    refuse(fmt::format("eval.{} is set but nothing is evaluated", e.patience > 0 ? "patience" : "keep_best"),
           "eval.every is 0", "Set eval.every to the steps between evaluations?");
  if (e.patience == 0 && e.min_delta > 0)
    refuse("eval.min_delta is of eval.patience only", fmt::format("it is {}, and patience is 0", e.min_delta),
           "Set eval.patience, or leave min_delta out?");
}

/// What is contradictory: a table that is coarser than the numbers it multiplies, and moments that cannot
/// move. Allowed: any wire (it rounds a gradient once, the sum stays fp32), and bf16 parameters with
/// anything.
void check_precision(const PrecisionPolicy& p, const Optim& o) {
  if (p.buffers == Precision::bf16 && p.parameters == Precision::fp32)
    refuse("precision.buffers = bf16 contradicts precision.parameters = fp32",
           "rotary tables of 8 bits would take away most of the 24 that activations have",
           "Use fp32 buffers, or bf16 parameters?");
  // A moment loses (1 - beta) of itself a step where gradients vanish; bf16 rounds to 2^-8 of it at worst.
  const double slowest = 1.0 - std::ldexp(1.0, -8);
  const double beta = std::max(o.beta1, o.beta2);
  if (p.moments == Precision::bf16 && beta > slowest)
    refuse(fmt::format("precision.moments = bf16 contradicts optim.{} = {}",
                       o.beta1 > o.beta2 ? "beta1" : "beta2", beta),
           fmt::format("a step moves the moment by {:.2g} of itself, and bf16 rounds that away", 1 - beta),
           "Use a beta of at most 0.996, or fp32 moments?");
}

/// What every backend can multiply: tensor cores take 8-bit operands whose sizes are multiples of 16.
void check_fp8(const RunConfig& c, const ModelShape& m) {
  if (c.precision.products != Products::fp8) return;
  if (c.lora.rank > 0)
    refuse("precision.products = fp8 contradicts lora.rank", "8-bit products have no adapters beside them",
           "Use precision.products = bf16?");
  if (c.precision.parameters == Precision::fp32)
    refuse("precision.products = fp8 contradicts precision.parameters = fp32",
           "operands are rounded to 8 bits from bf16", "Use bf16 parameters?");
  if (c.fp8.scaling == Scaling::current && c.fp8.margin != 0)
    refuse("fp8.margin is of delayed scaling only",
           fmt::format("it is {}, and current scaling knows the largest element", c.fp8.margin),
           "Use scaling = \"delayed\", or leave margin out?");
  const std::int64_t tokens = std::int64_t{c.train.micro_batch} * c.train.sequence;
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"train.micro_batch * train.sequence", tokens},
      {"model.width", m.width},
      {"the width of q, k and v", width_of(m, Activation::qkv)},
      {"model.ffn", m.ffn}};
  for (const auto& [name, size] : sizes)
    if (size % 16 != 0)
      refuse(
          fmt::format("precision.products = fp8 needs sizes that are multiples of 16, and {} is not", name),
          fmt::format("it is {}", size), "Use products = \"bf16\", or another size?");
}

/// Adapters sit beside linear layers that have a tensor of their own.
void check_fused(const ModelShape& m) {
  if (!m.fused) return;
  for (const Projection p : {Projection::q, Projection::k, Projection::v, Projection::gate, Projection::up})
    if (m.adapters.has(p))
      refuse(fmt::format("lora.targets has {}", names_of_projections[as_size(p)]),
             fmt::format("it is a part of a larger tensor in model {}", m.name), "Use o_proj and down_proj?");
}

/// While the steps are open, only what does not depend on them.
void check_schedule(const Optim& o, const Train& t) {
  const std::int64_t warmup = warmup_steps_of(o, t.steps);
  if (t.steps > 0 && warmup > t.steps)
    refuse("optim.warmup_steps is more than train.steps", fmt::format("{} > {}", o.warmup_steps, t.steps),
           fmt::format("Use {}?", t.steps / 10));
  if (o.schedule != Schedule::wsd) {
    if (o.decay_steps > 0)
      refuse("optim.decay_steps is of the wsd schedule only",
             fmt::format("it is {}, and the schedule is another", o.decay_steps),
             "Use schedule = \"wsd\", or leave decay_steps out?");
    return;
  }
  if (const auto decay = decay_steps_of(o, t.steps); t.steps > 0 && warmup + decay > t.steps)
    refuse("warmup and decay are longer than the run",
           fmt::format("{} steps of warmup and {} of decay, {} in all", warmup, decay, t.steps),
           fmt::format("Use optim.warmup_steps = {}?", std::max<std::int64_t>(0, t.steps - decay)));
}

/// The parts of a mixture are repeated at rates of their own: no step is the end of a pass over all of them.
void check_epochs(const Train& t, const Data& d) {
  if (t.epochs > 0 && mixture_of(d).size() > 1)
    refuse("train.epochs is set, and a mixture has no epochs",
           fmt::format("the weights of the {} parts of data.mixture say how often each is repeated",
                       d.mixture.size()),
           "Set train.steps, or prepare the texts as one token file?");
}

void check_optim(const Optim& o, const Train& t, const ModelShape& m) {
  if (o.min_lr > o.lr)
    refuse("optim.min_lr is above optim.lr", fmt::format("{} > {}", o.min_lr, o.lr),
           "Use a tenth of optim.lr?");
  if (o.beta1 >= 1 || o.beta2 >= 1)
    refuse("optim.beta1 and beta2 must be below 1", fmt::format("they are {} and {}", o.beta1, o.beta2),
           "Use 0.9 and 0.95?");
  if (o.epsilon <= 0)
    refuse("optim.epsilon must be above 0", fmt::format("it is {}", o.epsilon), "Use 1e-8?");
  check_schedule(o, t);
  const auto groups = optim_groups(o);
  std::vector<bool> used(groups.size() + 1, false);
  if (!groups.empty())
    for (const auto& tensor : tensors_of(m)) used[group_of(groups, tensor.name)] = true;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (!used[i + 1])
      refuse("optim.groups: \"" + groups[i].match + "\" is the group of no tensor",
             "no name of model " + m.name + " matches it that an earlier group has not taken",
             "Tensors are called model.layers.0.mlp.up_proj.weight and so on; put the narrower glob first?");
}

void check_guard(const Guard& g, const Checkpoint& c) {
  if (g.on_spike != GuardAction::report && g.loss_factor == 0 && g.norm_factor == 0)
    refuse("guard.on_spike is set but nothing counts as a spike",
           "guard.loss_factor and guard.norm_factor are both 0", "Set guard.loss_factor, for example to 3?");
  if ((g.on_nan == GuardAction::rollback || g.on_spike == GuardAction::rollback) && c.every == 0)
    refuse("the guard cannot roll back", "checkpoint.every is 0, so there is no checkpoint to go back to",
           "Set checkpoint.every, or use skip?");
  if (g.on_nan == GuardAction::report)
    refuse("guard.on_nan cannot be report", "an update with NaN destroys the state", "Use stop?");
}

void check_levels(const Checkpoint& c) {
  if (c.local != "auto" && c.local != "none" && !c.local.starts_with('/'))
    refuse("checkpoint.local must be an absolute path", fmt::format("it is \"{}\"", c.local),
           "A folder that every node has by itself, as /dev/shm, or none?");
  if (c.partner_every % c.local_every != 0)
    refuse("checkpoint.partner_every must be a multiple of checkpoint.local_every",
           fmt::format("{} and {}", c.partner_every, c.local_every), "Only a local snapshot can be copied");
  if (c.interval == Interval::automatic && c.every == 0)
    refuse("checkpoint.interval cannot be auto", "checkpoint.every is 0: only at the end",
           "Set checkpoint.every to a first guess?");
}

void check_interval(const Checkpoint& c) {
  if (c.every < 0)
    refuse("checkpoint.every must not be negative", fmt::format("it is {}", c.every),
           "Use 0 for the end only?");
}

}  // namespace

void check_train(const Train& t, const ModelShape& m) {
  if (t.steps < 1 && t.epochs <= 0)
    refuse("train.steps must be at least 1", fmt::format("it is {}", t.steps), "Use 1, or set train.epochs?");
  if (t.global_batch < 1 || t.micro_batch < 1)
    refuse("train.global_batch and train.micro_batch must be at least 1",
           fmt::format("they are {} and {}", t.global_batch, t.micro_batch), "Use 1?");
  if (t.global_batch % t.micro_batch != 0)
    refuse("train.micro_batch does not divide train.global_batch",
           fmt::format("the {} sequences of a step are no whole number of micro-batches of {}",
                       t.global_batch, t.micro_batch),
           fmt::format("Use train.global_batch = {}?",
                       (std::int64_t{t.global_batch} / t.micro_batch + 1) * t.micro_batch));
  if (t.sequence < 1 || t.sequence > m.max_sequence)
    refuse("train.sequence is out of range",
           fmt::format("it is {}; model {} takes 1 to {} tokens", t.sequence, m.name, m.max_sequence),
           fmt::format("Use {}?", m.max_sequence));
  if (t.lanes < 0)
    refuse("train.lanes must not be negative", fmt::format("it is {}", t.lanes),
           "Use 0 for one per micro-batch?");
}

void check_training(const RunConfig& config, const ModelShape& model, ErrorList& refused) {
  refused.of([&] { adapters_of(config.lora); });
  refused.of([&] { check_epochs(config.train, config.data); });
  refused.of([&] { check_eval(config.eval, config.data); });
  refused.of([&] { check_precision(config.precision, config.optim); });
  refused.of([&] { check_fp8(config, model); });
  refused.of([&] { check_fused(model); });
  refused.of([&] { check_optim(config.optim, config.train, model); });
  refused.of([&] { check_guard(config.guard, config.checkpoint); });
  refused.of([&] { check_interval(config.checkpoint); });
  refused.of([&] { check_levels(config.checkpoint); });
}

}  // namespace holdfast::config
