#pragma once
// What our GPU kernels cannot compute: ranks refuse it when they meet it, and the planner before a queue
// does.
#include <cstdint>

namespace holdfast {

/// Throws Error (usage) unless attention on a GPU takes activations of this type and heads of this size.
void check_gpu_attention(bool bf16, std::int64_t head_size);

}  // namespace holdfast
