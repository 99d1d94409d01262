// What a model of a given shape computes. block_ops() is the list of a block's operations; all else is read
// off it:
//
// - parts_of() and tensors_of_op() say which stored tensors an operation reads, and their sizes.
// - width_of() and numbers_of() say how large what lies between two operations is for a token.
// - activation_rows() says what a micro-batch keeps, by the mode of activation checkpointing, with the room
//   for products in 8 bits and for adapters. Planner and trainer read the same rows.
//
// A new kind of model changes the list, or the sizes of one role; nothing here depends on a family's name.
#include "src/config/architecture.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/kernel_sizes.hpp"

namespace holdfast::config {

std::vector<BlockOp> block_ops(const ModelShape& m, int layer) {
  using enum Activation;
  using enum BlockOp::Kind;
  const Activation qkv_out = m.qk_norm ? projected : qkv;
  std::vector<BlockOp> out;
  if (m.norm_after)
    out = {{add, input, input}, {linear, input, qkv_out, Role::qkv}};
  else
    out = {{norm, input, attention_normed, Role::attention_norm, attention_rms},
           {linear, attention_normed, qkv_out, Role::qkv}};
  if (m.qk_norm) out.push_back({head_norm, projected, qkv, Role::q_norm, head_rms});
  const bool windowed = m.has_window(layer);
  if (m.nope_every == 0 || (layer + 1) % m.nope_every != 0) out.push_back({rope, qkv, qkv, {}, {}, windowed});
  out.push_back({attention, qkv, attended, {}, log_sum, windowed});
  const std::vector<BlockOp> before = {{linear, attended, branch, Role::o},
                                       {norm, middle, mlp_normed, Role::mlp_norm, mlp_rms},
                                       {linear, mlp_normed, gate_up, Role::gate_up},
                                       {swiglu, gate_up, activated},
                                       {linear, activated, branch, Role::down}},
                             after = {
                                 {linear, attended, attention_out, Role::o},
                                 {norm_after, attention_out, branch, Role::attention_norm, attention_rms},
                                 {add, middle, middle},
                                 {linear, middle, gate_up, Role::gate_up},
                                 {swiglu, gate_up, activated},
                                 {linear, activated, mlp_out, Role::down},
                                 {norm_after, mlp_out, branch, Role::mlp_norm, mlp_rms}};
  for (const BlockOp& op : m.norm_after ? after : before) out.push_back(op);
  return out;
}

std::int64_t width_of(const ModelShape& m, Activation what) {
  switch (what) {
    case Activation::projected:
    case Activation::qkv:
      return m.query_width() + 2 * m.key_width();
    case Activation::attended:
      return m.query_width();
    case Activation::gate_up:
      return 2 * std::int64_t{m.ffn};
    case Activation::activated:
      return m.ffn;
    default:
      return m.width;
  }
}

std::int64_t numbers_of(const ModelShape& m, Activation what) {
  if (what == Activation::log_sum) return m.heads;
  if (what != Activation::head_rms) return 1;
  return m.qk_norm_whole ? 2 : std::int64_t{m.heads} + m.kv_heads;
}

std::vector<LinearPart> parts_of(const ModelShape& m, Role linear) {
  using enum Projection;
  switch (linear) {
    case Role::qkv:
      return {{q, "self_attn.q_proj", m.query_width()},
              {k, "self_attn.k_proj", m.key_width()},
              {v, "self_attn.v_proj", m.key_width()}};
    case Role::o:
      return {{o, "self_attn.o_proj", m.width}};
    case Role::gate_up:
      return {{gate, "mlp.gate_proj", m.ffn}, {up, "mlp.up_proj", m.ffn}};
    default:
      return {{down, "mlp.down_proj", m.width}};
  }
}

namespace {

std::vector<TensorSpec> tensors_of_linear(const ModelShape& m, const BlockOp& op) {
  std::vector<LinearPart> parts = parts_of(m, op.role);
  if (m.fused && parts.size() > 1)
    parts = {{{}, op.role == Role::qkv ? "self_attn.qkv_proj" : "mlp.gate_up_proj", width_of(m, op.out)}};
  const bool biased = op.role == Role::qkv ? m.qkv_bias : op.role == Role::o ? m.o_bias : m.mlp_bias;
  std::vector<TensorSpec> out;
  for (const auto& [projection, module, rows] : parts)
    out.push_back({module + ".weight", rows, width_of(m, op.in), 0, TensorKind::matrix, op.role});
  for (const auto& [projection, module, rows] : parts)
    if (biased) out.push_back({module + ".bias", rows, 1, 0, TensorKind::bias, op.role});
  return out;
}

}  // namespace

std::vector<TensorSpec> tensors_of_op(const ModelShape& m, const BlockOp& op) {
  const auto gain = [](const char* module, std::int64_t width, Role role) {
    return TensorSpec{std::string(module) + ".weight", 1, width, 0, TensorKind::gain, role};
  };
  switch (op.kind) {
    case BlockOp::Kind::norm:
      return {gain(op.role == Role::attention_norm ? "input_layernorm" : "post_attention_layernorm",
                   width_of(m, op.in), op.role)};
    case BlockOp::Kind::norm_after:
      return {
          gain(op.role == Role::attention_norm ? "post_attention_layernorm" : "post_feedforward_layernorm",
               width_of(m, op.in), op.role)};
    case BlockOp::Kind::head_norm:
      return {gain("self_attn.q_norm", m.qk_norm_whole ? m.query_width() : m.head_size(), Role::q_norm),
              gain("self_attn.k_norm", m.qk_norm_whole ? m.key_width() : m.head_size(), Role::k_norm)};
    case BlockOp::Kind::linear:
      return tensors_of_linear(m, op);
    default:
      return {};
  }
}

std::array<std::int64_t, linears_of_block> linear_elements(const ModelShape& shape) {
  std::array<std::int64_t, linears_of_block> out{};
  for (const BlockOp& op : block_ops(shape, 0))
    if (op.kind == BlockOp::Kind::linear)
      out[static_cast<int>(op.role)] = width_of(shape, op.in) * width_of(shape, op.out);
  return out;
}

namespace {

using Mode = ActivationCheckpointing;

/// The largest sizes among all linear layers, or among those with adapters.
struct Widest {
  std::int64_t in = 0, any = 0;  ///< columns of an input; of an input or an output
  std::int64_t weight = 0;       ///< elements
  std::int64_t adapters = 0;     ///< that read one input
};

Widest widest_of(const ModelShape& m, bool adapted) {
  Widest out;
  for (const BlockOp& op : block_ops(m, 0)) {
    if (op.kind != BlockOp::Kind::linear) continue;
    const auto parts = parts_of(m, op.role);
    const auto adapters =
        std::ranges::count_if(parts, [&](const LinearPart& part) { return m.adapters.has(part.projection); });
    if (adapted && adapters == 0) continue;
    const std::int64_t in = width_of(m, op.in), result = width_of(m, op.out);
    out.in = std::max(out.in, in);
    out.any = std::max({out.any, in, result});
    out.weight = std::max(out.weight, in * result);
    out.adapters = std::max<std::int64_t>(out.adapters, adapters);
  }
  return out;
}

class Rows {
 public:
  Rows(const ModelShape& shape, const ComputeOptions& options) : m_(shape), o_(options) {}

  std::vector<ActivationRow> all() {
    block();
    around();
    if (o_.products == Products::fp8) fp8();
    if (m_.adapters.any()) adapters();
    return std::move(rows_);
  }

 private:
  void one(Activation what, const char* name, DType type, std::int64_t rows, std::int64_t cols) {
    rows_.push_back({what, name, type, rows, cols});
  }

  /// What the operations of a block leave: in mode `shared_from` and those after it all blocks share one.
  void block() {
    using enum Activation;
    struct Kept {
      Activation what;
      const char* name;
      Mode shared_from;
    };
    // Where heads are normalised, queries and keys are computed again from what was before.
    const Mode rotated = m_.qk_norm ? Mode::selective : Mode::full;
    const Kept all[] = {{attention_normed, "attention normed", Mode::selective},
                        {projected, "qkv before their norms", Mode::full},
                        {head_rms, "inverse rms of heads", Mode::selective},
                        {qkv, "qkv", rotated},
                        {attended, "attended", Mode::attention},
                        {log_sum, "log sum", Mode::attention},
                        {attention_out, "attention out", Mode::full},
                        {middle, "middle", Mode::full},
                        {mlp_normed, "mlp normed", Mode::selective},
                        {gate_up, "gate up", Mode::full},
                        {activated, "activated", Mode::selective},
                        {mlp_out, "mlp out", Mode::full},
                        {attention_rms, "attention inverse rms", Mode::full},
                        {mlp_rms, "mlp inverse rms", Mode::full}};
    rows_.push_back({input, "input", o_.activations, tokens_, m_.width, true});
    const auto ops = block_ops(m_, 0);
    for (const Kept& row : all) {
      const auto is_in = [&](auto... places) {
        return std::ranges::any_of(ops, [&](const BlockOp& op) { return ((op.*places == row.what) || ...); });
      };
      const bool each = o_.activation_checkpointing < row.shared_from;
      if (is_in(&BlockOp::in, &BlockOp::out))
        rows_.push_back({row.what, row.name, o_.activations, tokens_, width_of(m_, row.what), each});
      if (is_in(&BlockOp::numbers))
        rows_.push_back({row.what, row.name, DType::fp32, numbers_of(m_, row.what), tokens_, each});
    }
  }

  void around() {
    using enum Activation;
    const std::int64_t d = m_.width, half = m_.rotary_size() / 2;
    one(branch, "branch", o_.activations, tokens_, std::max(d, width_of(m_, attended)));
    one(output, "output", o_.activations, tokens_, d);
    one(d_residual, "d residual", o_.activations, tokens_, d);
    one(output_rms, "output inverse rms", DType::fp32, 1, tokens_);
    one(d_qkv, "d qkv", o_.activations, tokens_, width_of(m_, qkv));
    one(d_gate_up, "d gate up", o_.activations, tokens_, width_of(m_, gate_up));
    one(logits, "logits", DType::fp32, std::min(tokens_, head_chunk), m_.vocabulary);
    one(cosine, "rope cosine", o_.buffers, o_.sequence, half);
    one(sine, "rope sine", o_.buffers, o_.sequence, half);
    one(inputs, "inputs", DType::fp32, 1, tokens_);
    one(labels, "labels", DType::fp32, 1, tokens_);
    one(document_start, "document starts", DType::fp32, 1, tokens_);
    if (m_.window > 0 && m_.window < o_.sequence) one(window_start, "window starts", DType::fp32, 1, tokens_);
    if (m_.window_rope_theta == 0) return;
    one(window_cosine, "rope cosine of windows", o_.buffers, o_.sequence, half);
    one(window_sine, "rope sine of windows", o_.buffers, o_.sequence, half);
  }

  void fp8() {
    using enum Activation;
    const Widest widest = widest_of(m_, false);
    const std::int64_t operands = std::int64_t{fp8_operands_of_block} * m_.layers;
    one(fp8_left, "8-bit left operand", DType::e4m3, 1, tokens_ * widest.any);
    one(fp8_turned, "8-bit transposed left operand", DType::e4m3, 1, tokens_ * widest.any);
    one(fp8_right, "8-bit right operand", DType::e4m3, 1,
        std::max(tokens_ * widest.in, o_.keeps_copies ? 0 : widest.weight));
    one(fp8_scale, "8-bit scales", DType::fp32, 1, operands);
    one(fp8_inverse, "8-bit inverse scales", DType::fp32, operands, inverse_stride);
    if (o_.scaling == Scaling::delayed)
      one(fp8_amax, "8-bit largest values of a step", DType::fp32, 1, operands);
    one(fp8_measured, "8-bit largest values of a micro-batch", DType::fp32, 1, operands);
    if (!o_.keeps_copies) return;
    const auto weights = linear_elements(m_);
    rows_.push_back({fp8_weights, "8-bit weights", DType::e4m3, 1,
                     2 * std::accumulate(weights.begin(), weights.end(), std::int64_t{0}), true});
  }

  void adapters() {
    using enum Activation;
    const Widest widest = widest_of(m_, true);
    const std::int64_t chunk = std::min(tokens_, head_chunk), inner = widest.adapters * m_.adapters.rank;
    const bool drops = m_.adapters.dropout > 0;
    if (o_.activations != DType::fp32 || drops)
      one(adapter_wide, "adapter product", DType::fp32, chunk, widest.any);
    one(adapter_inner, "adapter inner", DType::fp32, tokens_, inner);
    one(adapter_scaled, "adapter inner, scaled", o_.activations, tokens_, inner);
    one(adapter_kept, "adapter inner, kept", o_.activations, tokens_, inner);
    if (!drops) return;
    one(adapter_through, "adapter input gradient", DType::fp32, chunk, widest.in);
    one(adapter_dropped, "adapter input", o_.activations, tokens_, widest.in);
  }

  const ModelShape& m_;
  const ComputeOptions& o_;
  const std::int64_t tokens_ = o_.tokens();
  std::vector<ActivationRow> rows_;
};

}  // namespace

std::vector<ActivationRow> activation_rows(const ModelShape& shape, const ComputeOptions& options) {
  return Rows(shape, options).all();
}

std::int64_t activation_bytes(const ModelShape& shape, const ComputeOptions& options) {
  constexpr std::int64_t cache_line = 64;
  std::int64_t sum = 0;
  for (const ActivationRow& row : activation_rows(shape, options))
    sum += (row.bytes() + cache_line - 1) / cache_line * cache_line * (row.every_block ? shape.layers : 1);
  return sum;
}

}  // namespace holdfast::config
