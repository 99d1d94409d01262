#pragma once
// What may be chosen about sharding without changing what is computed, and the two types that do change it.
#include <optional>
#include <vector>

#include "src/base/block_code.hpp"
#include "src/config/run_config.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::shard {

using tensor::DType;

struct Policy {
  DType parameters = DType::fp32;                   ///< of gathered weights, in memory and on the wire
  DType reduce = DType::fp32;                       ///< of gradients on the wire (numerics rule 9)
  int prefetch_forward = 1, prefetch_backward = 1;  ///< uses that a gather may run ahead of
  int gathered_limit = 0;                           ///< units gathered but not yet used; 0: the larger depth
  std::vector<bool> kept;                           ///< by block: has a gather buffer of its own; empty: none
  bool keep_across_micro_steps = false;             ///< kept blocks are gathered once per step
  std::optional<BlockCode> base = {};  ///< of frozen linear layers, where they lie; nothing: as `parameters`

  bool keeps(int block) const { return !kept.empty() && kept[block]; }
};

std::optional<BlockCode> code_of(const config::Lora& lora);
Policy policy_of(const config::RunConfig& config, int layers);

}  // namespace holdfast::shard
