#include "src/shard/policy.hpp"

#include "src/config/compute_options.hpp"
#include "src/config/kept_blocks.hpp"

namespace holdfast::shard {

std::optional<BlockCode> code_of(const config::Lora& lora) {
  if (lora.rank == 0 || lora.base == config::Base::parameters) return std::nullopt;
  return lora.base == config::Base::int8 ? BlockCode::int8 : BlockCode::nf4;
}

Policy policy_of(const config::RunConfig& config, int layers) {
  const config::Shard& s = config.shard;
  return {type_of(config.precision.parameters),
          type_of(config.precision.reduce),
          s.prefetch_forward,
          s.prefetch_backward,
          s.gathered_limit,
          config::kept_blocks(s, layers),
          s.keep_across_micro_steps,
          code_of(config.lora)};
}

}  // namespace holdfast::shard
