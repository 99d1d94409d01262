// A step is M micro-steps and the optimizer. A micro-step is a forward and a backward pass over the blocks.
//
// 1. Blocks goes through config::block_ops and gives each operation its seconds, forwards and backwards: a
//    product by its shape, attention by its operations, all else by the bytes that it reads and writes.
// 2. Beside a block the next one is gathered, and backwards the gradients of the one before are reduced:
//    beside() says how much slower that is, and how long the step then waits. In the last micro-step
//    replicas exchange their sums, too.
// 3. Nothing hides what has nothing to hide behind: the first gather, the last reduction and exchange, the
//    optimizer, and under hfsdp the gather of its results.
#include "launcher/foresee/step_time.hpp"

#include <algorithm>
#include <cmath>

#include "src/config/architecture.hpp"

namespace holdfast::launcher {
namespace {

constexpr double bf16 = 2;
constexpr int kernels_of_block = 25;  // of both passes: docs/gpu-budget.md

/// Seconds of one block and micro-step.
struct BlockTime {
  double products_forward = 0, products_backward = 0, products_again = 0;
  double attention_forward = 0, attention_backward = 0;
  double pointwise_forward = 0, pointwise_backward = 0;
  double parameters = 0, trained = 0;

  double forward() const { return products_forward + attention_forward + pointwise_forward; }
  double again(const Recomputed& r) const {
    return r.products * products_again + r.attention * attention_forward + r.pointwise * pointwise_forward;
  }
  double backward(const Recomputed& r) const {
    return products_backward + attention_backward + pointwise_backward + again(r);
  }
};

class Blocks {
 public:
  Blocks(const StepFacts& facts, const Rates& rates) : f_(facts), rates_(rates) {}

  BlockTime block(int layer) const {
    BlockTime out;
    for (const config::BlockOp& op : config::block_ops(f_.model, layer)) {
      for (const auto& tensor : config::tensors_of_op(f_.model, op))
        out.parameters += static_cast<double>(tensor.elements());
      switch (op.kind) {
        case config::BlockOp::Kind::linear:
          linear(op, out);
          break;
        case config::BlockOp::Kind::attention:
          attention(out);
          break;
        case config::BlockOp::Kind::norm:  // residual, branch, their sum, output; backwards as many
          pointwise(4, 4, width(op.out), out);
          break;
        case config::BlockOp::Kind::add:  // residual, branch, their sum; backwards of two gradients
          pointwise(3, 3, width(op.out), out);
          break;
        case config::BlockOp::Kind::norm_after:
        case config::BlockOp::Kind::head_norm:
          pointwise(2, 3, width(op.out), out);
          break;
        case config::BlockOp::Kind::rope:
          pointwise(2, 2, static_cast<double>(f_.model.query_width() + f_.model.key_width()), out);
          break;
        case config::BlockOp::Kind::swiglu:  // gate, up, output; backwards both gradients, too
          pointwise(3, 5, width(op.out), out);
          break;
      }
    }
    if (!f_.model.adapters.any()) out.trained = out.parameters;
    return out;
  }

 private:
  double width(config::Activation what) const {
    return static_cast<double>(config::width_of(f_.model, what));
  }
  double product(double m, double n, double k) const { return product_s(f_.gpu, rates_, f_.fp8, m, n, k); }

  void pointwise(double forward, double backward, double width, BlockTime& out) const {
    const double bytes = f_.tokens() * width * bf16 * f_.trainer.pointwise;
    out.pointwise_forward += stream_s(f_.gpu, rates_, forward * bytes);
    out.pointwise_backward += stream_s(f_.gpu, rates_, backward * bytes);
  }

  void attention(BlockTime& out) const {
    // Scores and their weighted sum, of half of all pairs; backwards five products instead of two.
    const double flops = 2 * f_.tokens() * f_.sequence * static_cast<double>(f_.model.query_width());
    const auto seconds = [&](bool backward) {
      return f_.trainer.attention_slower * flops /
             (f_.gpu.bf16_flops * rates_.attention *
              attention_share(f_.trainer.attention, backward, f_.sequence, f_.model.head_size()));
    };
    out.attention_forward += seconds(false);
    out.attention_backward += 2.5 * seconds(true);
  }

  void linear(const config::BlockOp& op, BlockTime& out) const {
    const double rows = f_.tokens(), in = width(op.in), result = width(op.out);
    const bool last = op.role == config::Role::down;
    const double forward = product(rows, result, in);
    out.products_forward += forward;
    if (!last) out.products_again += forward;
    out.products_backward += product(rows, in, result);
    if (!f_.model.adapters.any()) out.products_backward += product(result, in, rows);
    if (f_.fp8 && f_.gpu.fp8_flops > 0) {  // read in 16 bits; written, and written transposed, in 8
      const double rounded = rows + f_.rounded_weights * result;
      out.pointwise_forward += stream_s(f_.gpu, rates_, rounded * in * (bf16 + 2));
      out.pointwise_backward += stream_s(f_.gpu, rates_, rows * result * (bf16 + 2));
    }
    for (const config::LinearPart& part : config::parts_of(f_.model, op.role)) {
      if (!f_.model.adapters.has(part.projection) || !f_.model.adapters.any()) continue;
      const double rank = f_.model.adapters.rank, outs = static_cast<double>(part.rows);
      out.trained += rank * (in + outs);
      out.products_forward += product(rows, rank, in) + product(rows, outs, rank);
      out.products_backward += 2 * (product(rows, rank, outs) + product(rows, in, rank));
    }
  }

  const StepFacts& f_;
  const Rates& rates_;
};

/// Communication beside `computing` seconds of computing, which is slower meanwhile.
struct Beside {
  double shared = 0, waited = 0;
};
Beside beside(double computing, double communicating, double taken) {
  const double shared = taken * std::min(communicating, computing / (1 - taken));
  return {shared, std::max(0.0, communicating - computing - shared)};
}

class Step {
 public:
  Step(const StepFacts& facts, const Rates& rates) : f_(facts), rates_(rates) {}

  StepParts parts() {
    blocks();
    head();
    ends();
    sums_and_optimizer();
    out_.launches = steps_ * f_.model.layers * kernels_of_block * rates_.launch_s;
    return out_;
  }

 private:
  double collective(Members members, double bytes) const {
    return collective_s(f_.gpu, rates_, f_.adapter_bytes_s, members, bytes);
  }
  double in_group(double bytes) const { return collective(group_, bytes); }
  /// What replicas exchange of so many parameters that a group holds together.
  double among_peers(double trained) const {
    const double slice = trained / f_.group;
    const double sums = collective(peers_, f_.partial_sums * slice * f_.summed_bytes);
    return f_.split_optimizer ? sums : sums + collective(peers_, slice * f_.summed_bytes);
  }

  bool group_on_network() const { return group_.nodes() > 1; }
  double& waits(bool network) { return network ? out_.network : out_.links; }
  void add(Beside b, double times, bool network) {
    out_.shared += b.shared * times;
    waits(network) += b.waited * times;
  }

  void blocks() {
    const double taken = 1 - std::max(0.1, 1 - rates_.taken / f_.gpu.multiprocessors) * rates_.clock_beside;
    const Blocks blocks(f_, rates_);
    for (int layer = 0; layer < f_.model.layers; ++layer) {
      const BlockTime t = blocks.block(layer);
      out_.products += steps_ * (t.products_forward + t.products_backward);
      out_.attention += steps_ * (t.attention_forward + t.attention_backward);
      out_.pointwise += steps_ * (t.pointwise_forward + t.pointwise_backward);
      out_.recomputed += steps_ * t.again(f_.recomputed);
      gather_ = in_group(t.parameters * f_.gathered_bytes);
      reduction_ = in_group(t.trained * f_.reduced_bytes);
      exchange_ = among_peers(t.trained);

      const double forward_gathers = std::min(1.0, f_.gathers),
                   backward_gathers = f_.gathers - forward_gathers;
      add(beside(t.forward(), forward_gathers * gather_, taken), steps_, group_on_network());
      const double backward = t.backward(f_.recomputed), moving = backward_gathers * gather_ + reduction_;
      add(beside(backward, moving, taken), steps_ - 1, group_on_network());
      // In the last micro-step the exchange has links of its own where the group stays inside a node.
      const double last = group_on_network() ? moving + exchange_ : std::max(moving, exchange_);
      add(beside(backward, last, taken), 1, group_on_network() || (exchange_ > moving && peers_.nodes() > 1));
    }
  }

  void head() {
    const double rows = f_.tokens(), words = f_.model.vocabulary, width = f_.model.width;
    const auto product = [&](double m, double n, double k) {
      return product_s(f_.gpu, rates_, false, m, n, k);
    };
    const double gradient = f_.model.adapters.any() ? 0 : product(words, width, rows);
    out_.head = steps_ * (product(rows, words, width) + product(rows, width, words) + gradient +
                          stream_s(f_.gpu, rates_, rows * words * f_.trainer.loss_bytes));
  }

  /// The embedding and a block are gathered before anything can be computed; the first block's gradients and
  /// the embedding's come last.
  void ends() {
    const double table = 1.0 * f_.model.vocabulary * f_.model.width;
    const double trained = f_.model.adapters.any() ? 0 : table;
    if (f_.group > 1)
      waits(group_on_network()) +=
          gather_ + in_group(table * f_.gathered_bytes) + reduction_ + in_group(trained * f_.reduced_bytes);
    if (f_.replicas == 1) return;
    waits(peers_.nodes() > 1) += exchange_ + among_peers(trained);
    if (f_.split_optimizer)
      waits(peers_.nodes() > 1) += collective(peers_, all_trained_ / f_.group * f_.gathered_bytes);
  }

  /// Received gradients are read, and the sum is read and written. What products add themselves takes no time
  /// of its own.
  void sums_and_optimizer() {
    double bytes = all_trained_ * f_.merged_bytes;
    if (f_.group > 1)
      bytes += steps_ * (all_trained_ * (f_.reduced_bytes + 8.0 / f_.group) +
                         static_cast<double>(config::parameters_of(f_.model)) * f_.trainer.copied_bytes);
    if (f_.replicas > 1) bytes += all_trained_ / f_.group * 2 * f_.summed_bytes;
    out_.sums = stream_s(f_.gpu, rates_, bytes);

    const double updated = all_trained_ / f_.group / (f_.split_optimizer ? f_.replicas : 1);
    out_.optimizer = stream_s(f_.gpu, rates_, updated * f_.trainer.optimizer_bytes) +
                     updated * f_.offloaded_bytes / (f_.gpu.pcie_bytes_s * rates_.link);
  }

  const StepFacts& f_;
  const Rates& rates_;
  const double steps_ = f_.micro_steps;
  const double all_trained_ = static_cast<double>(config::trained_parameters_of(f_.model));
  const Members group_{f_.group, std::min(f_.group, f_.ranks_per_node)};
  const Members peers_{f_.replicas, std::max(1, f_.ranks_per_node / f_.group)};
  double gather_ = 0, reduction_ = 0, exchange_ = 0;  ///< of the last block seen
  StepParts out_;
};

}  // namespace

double StepParts::total() const {
  double sum = 0;
  for (const NamedPart& part : step_parts) sum += this->*part.seconds;
  return sum;
}

Recomputed recomputed_by(config::ActivationCheckpointing mode) {
  switch (mode) {
    case config::ActivationCheckpointing::none:
      return {};
    case config::ActivationCheckpointing::selective:
      return {0, 0, 1};
    case config::ActivationCheckpointing::attention:
      return {0, 1, 1};
    case config::ActivationCheckpointing::full:
      return {1, 1, 1};
  }
  return {};
}

StepParts step_time(const StepFacts& facts, const Rates& rates) { return Step(facts, rates).parts(); }

}  // namespace holdfast::launcher
