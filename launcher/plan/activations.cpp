#include "launcher/plan/activations.hpp"

#include <algorithm>

#include "launcher/plan/units.hpp"

namespace holdfast::launcher {
namespace {

/// 8-bit products: both operands of the largest product, one of them twice (as it is and transposed), and
/// six or seven numbers for each of a block's twelve operands (an inverse scale has room for four).
std::int64_t fp8_bytes(const config::RunConfig& config, const config::ModelShape& m, std::int64_t tokens) {
  if (config.precision.products != config::Products::fp8) return 0;
  const std::int64_t d = m.width, f = m.ffn, packed = d + 2 * std::int64_t{m.kv_heads} * m.head_size();
  const std::int64_t widest = std::max(packed, 2 * f);
  const std::int64_t numbers = config.fp8.scaling == config::Scaling::delayed ? 7 : 6;
  return 2 * tokens * widest + std::max(tokens * std::max(d, f), widest * d) + numbers * 12 * m.layers * 4;
}

/// Adapters: what all layers share of inputs and products of one, see src/model/activations.cpp.
std::int64_t adapter_bytes(const config::RunConfig& config, const config::ModelShape& m, std::int64_t tokens,
                           std::int64_t chunk) {
  using enum config::Projection;
  if (!m.adapters.any()) return 0;
  const std::int64_t d = m.width, f = m.ffn, packed = d + 2 * std::int64_t{m.kv_heads} * m.head_size();
  const std::int64_t value = bytes_of(config.precision.parameters), fp32 = 4;
  std::int64_t widest = 0, widest_input = 0, parts = 0;
  const auto take = [&](std::int64_t in, std::int64_t out, std::initializer_list<config::Projection> layers) {
    const auto count = std::ranges::count_if(layers, [&](auto p) { return m.adapters.has(p); });
    if (count == 0) return;
    widest = std::max({widest, in, out});
    widest_input = std::max(widest_input, in);
    parts = std::max<std::int64_t>(parts, count);
  };
  take(d, packed, {q, k, v}), take(d, d, {o}), take(d, 2 * f, {gate, up}), take(f, d, {down});
  const bool drops = m.adapters.dropout > 0;
  const std::int64_t inner = parts * m.adapters.rank;
  return (value != fp32 || drops ? chunk * widest * fp32 : 0) + tokens * inner * (fp32 + 2 * value) +
         (drops ? chunk * widest_input * fp32 + tokens * widest_input * value + 8 : 0);
}

}  // namespace

std::int64_t activation_bytes(const config::RunConfig& config, const config::ModelShape& m) {
  using Mode = config::ActivationCheckpointing;
  const Mode mode = config.train.activation_checkpointing;
  const std::int64_t tokens = std::int64_t{config.train.micro_batch} * config.train.sequence;
  const std::int64_t value = bytes_of(config.precision.parameters), fp32 = 4;
  const std::int64_t d = m.width, kv = std::int64_t{m.kv_heads} * m.head_size(), f = m.ffn;

  // Of each block and token: the outputs of both norms and of SwiGLU; attention's output and the log sums of
  // its heads; queries, keys, values, the residual in the middle, gate and up, and two inverse rms; its
  // input. Recomputation keeps one copy for all blocks instead of one for each.
  const std::int64_t cheap = (2 * d + f) * value, attended = d * value + m.heads * fp32,
                     inner = (2 * d + 2 * kv + 2 * f) * value + 2 * fp32, input = d * value;
  const auto copies = [&](Mode shared_from) { return mode < shared_from ? m.layers : 1; };
  const std::int64_t blocks = copies(Mode::selective) * cheap + copies(Mode::attention) * attended +
                              copies(Mode::full) * inner + m.layers * input;
  // Around the blocks: the branch, the last residual, its gradient; gradients of queries, keys, values, gate
  // and up; an inverse rms, token and label.
  const std::int64_t around = (4 * d + 2 * kv + 2 * f) * value + fp32 + 8;
  constexpr std::int64_t head_chunk = 1024;  // tokens whose logits exist at a time
  const std::int64_t logits = std::min(tokens, head_chunk) * m.vocabulary * fp32;
  const std::int64_t rope =
      std::int64_t{config.train.sequence} * m.head_size() * bytes_of(config.precision.buffers);
  return tokens * (blocks + around) + logits + rope + fp8_bytes(config, m, tokens) +
         adapter_bytes(config, m, tokens, std::min(tokens, head_chunk));
}

}  // namespace holdfast::launcher
