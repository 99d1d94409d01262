#include "src/model/activations.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/kernels/kernels.hpp"
#include "src/model/fp8_scaling.hpp"

namespace holdfast::model {

using Mode = config::ActivationCheckpointing;
using tensor::DType;

Activations::Activations(const config::ModelShape& shape, const Options& options,
                         std::int64_t attention_workspace, tensor::Arena& arena)
    : arena_(arena) {
  expects(options.micro_batch > 0 && options.sequence > 0, "a micro-batch has rows and tokens");
  const DType type = options.activations;
  const std::int64_t tokens = options.tokens(), d = shape.width, half = shape.head_size() / 2;
  plan_blocks(shape, options);
  branch = plan("branch", type, tokens, d);
  output = plan("output", type, tokens, d);
  d_residual = output_normed = plan("d residual", type, tokens, d);
  output_inverse_rms = plan("output inverse rms", DType::fp32, 1, tokens);
  if (!blocks.empty()) {
    d_qkv = plan("d qkv", type, tokens, blocks[0].qkv.cols);
    d_gate_up = plan("d gate up", type, tokens, blocks[0].gate_up.cols);
    workspace_ = arena_.plan<std::byte>("attention workspace", attention_workspace);
  }
  if (options.products == config::Products::fp8) plan_fp8(shape, options);
  if (shape.adapters.any()) plan_adapters(shape, options);
  logits = plan("logits", DType::fp32, std::min(tokens, kernels::head_chunk), shape.vocabulary);
  cosine = plan("rope cosine", options.buffers, options.sequence, half);
  sine = plan("rope sine", options.buffers, options.sequence, half);
  inputs_ = arena_.plan<std::int32_t>("inputs", tokens);
  labels_ = arena_.plan<std::int32_t>("labels", tokens);
  document_start_ = arena_.plan<std::int32_t>("document starts", tokens);
  loss_ = arena_.plan<tensor::ExactSum>("loss", options.sources);
  valid_ = arena_.plan<std::int64_t>("valid labels", options.sources);
  if (shape.adapters.dropout > 0) first_sample_ = arena_.plan<std::int64_t>("first sample", 1);
}

void Activations::plan_blocks(const config::ModelShape& shape, const Options& options) {
  const DType type = options.activations;
  const std::int64_t tokens = options.tokens(), d = shape.width, f = shape.ffn;
  const std::int64_t packed = (shape.heads + 2 * std::int64_t{shape.kv_heads}) * shape.head_size();
  struct Row {
    Buffer BlockBuffers::*buffer;
    const char* name;
    DType type;
    std::int64_t rows, cols;
    Mode shared_from;  ///< in this mode and those after it all blocks share one
  };
  const Row table[] = {
      {&BlockBuffers::attention_normed, "attention normed", type, tokens, d, Mode::selective},
      {&BlockBuffers::qkv, "qkv", type, tokens, packed, Mode::full},
      {&BlockBuffers::attended, "attended", type, tokens, d, Mode::attention},
      {&BlockBuffers::log_sum, "log sum", DType::fp32, shape.heads, tokens, Mode::attention},
      {&BlockBuffers::middle, "middle", type, tokens, d, Mode::full},
      {&BlockBuffers::mlp_normed, "mlp normed", type, tokens, d, Mode::selective},
      {&BlockBuffers::gate_up, "gate up", type, tokens, 2 * f, Mode::full},
      {&BlockBuffers::activated, "activated", type, tokens, f, Mode::selective},
      {&BlockBuffers::inverse_rms, "inverse rms", DType::fp32, 2, tokens, Mode::full},
  };
  BlockBuffers shared;
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string at = fmt::format("block {} ", layer);
    BlockBuffers b;
    b.input = plan(at + "input", type, tokens, d);
    for (const Row& row : table)
      if (options.activation_checkpointing < row.shared_from) {
        b.*row.buffer = plan(at + row.name, row.type, row.rows, row.cols);
      } else {
        if (layer == 0) shared.*row.buffer = plan(row.name, row.type, row.rows, row.cols);
        b.*row.buffer = shared.*row.buffer;
      }
    blocks.push_back(b);
  }
}

void Activations::plan_fp8(const config::ModelShape& shape, const Options& options) {
  const std::int64_t tokens = options.tokens(), d = shape.width, f = shape.ffn;
  const std::int64_t packed = (shape.heads + 2 * std::int64_t{shape.kv_heads}) * shape.head_size();
  const std::int64_t widest = std::max({d, packed, 2 * f}), roles = std::int64_t{fp8_roles} * shape.layers;
  fp8.left = plan("8-bit left operand", DType::e4m3, 1, tokens * widest);
  fp8.turned = plan("8-bit transposed left operand", DType::e4m3, 1, tokens * widest);
  fp8.right = plan("8-bit right operand", DType::e4m3, 1, std::max(tokens * std::max(d, f), widest * d));
  fp8.scale = plan("8-bit scales", DType::fp32, 1, roles);
  fp8.inverse = plan("8-bit inverse scales", DType::fp32, roles, kernels::inverse_stride);
  if (options.scaling == config::Scaling::delayed)
    fp8.amax = plan("8-bit largest values of a step", DType::fp32, 1, roles);
  fp8.measured = plan("8-bit largest values of a micro-batch", DType::fp32, 1, roles);
}

void Activations::plan_adapters(const config::ModelShape& shape, const Options& options) {
  using enum config::Projection;
  const auto& on = shape.adapters;
  const std::int64_t tokens = options.tokens(), chunk = std::min(tokens, kernels::head_chunk);
  const std::int64_t d = shape.width, f = shape.ffn,
                     packed = (shape.heads + 2 * std::int64_t{shape.kv_heads}) * shape.head_size();
  std::int64_t widest = 0, widest_input = 0, layers = 0;
  const auto take = [&](std::int64_t in, std::int64_t out, std::initializer_list<config::Projection> parts) {
    const auto count = std::ranges::count_if(parts, [&](auto p) { return on.has(p); });
    if (count == 0) return;
    widest = std::max({widest, in, out});
    widest_input = std::max(widest_input, in);
    layers = std::max<std::int64_t>(layers, count);
  };
  take(d, packed, {q, k, v}), take(d, d, {o}), take(d, 2 * f, {gate, up}), take(f, d, {down});
  const std::int64_t inner = layers * on.rank;
  if (options.activations != DType::fp32 || on.dropout > 0)
    adapters.wide = plan("adapter product", DType::fp32, chunk, widest);
  adapters.inner = plan("adapter inner", DType::fp32, tokens, inner);
  adapters.scaled = plan("adapter inner, scaled", options.activations, tokens, inner);
  adapters.kept = plan("adapter inner, kept", options.activations, tokens, inner);
  if (on.dropout == 0) return;
  adapters.through = plan("adapter input gradient", DType::fp32, chunk, widest_input);
  adapters.dropped = plan("adapter input", options.activations, tokens, widest_input);
}

Buffer Activations::plan(const std::string& name, DType type, std::int64_t rows, std::int64_t cols) {
  return {arena_.plan<std::byte>(name, rows * cols * tensor::bytes_of(type)), type, rows, cols};
}

std::int64_t activation_bytes(const config::ModelShape& shape, const Options& options,
                              std::int64_t attention_workspace) {
  tensor::Arena arena;
  const Activations plan(shape, options, attention_workspace, arena);
  return arena.planned_bytes();
}

}  // namespace holdfast::model
