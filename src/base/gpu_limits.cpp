#include "src/base/gpu_limits.hpp"

#include <fmt/core.h>

#include "src/base/error.hpp"

namespace holdfast {

void check_gpu_attention(bool bf16, std::int64_t head_size) {
  if (!bf16)
    throw Error(Exit::usage, "attention on the GPU computes in bf16 only",
                "the parameters' precision makes its activations another type",
                "Set precision.parameters = \"bf16\"?");
  if (head_size % 8 != 0 || head_size > 128)
    throw Error(Exit::usage, fmt::format("attention on the GPU has no heads of {} elements", head_size),
                "it supports multiples of 8 up to 128",
                "choose model.width and model.heads so that heads have 64 or 128?");
}

}  // namespace holdfast
