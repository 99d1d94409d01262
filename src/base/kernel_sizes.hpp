#pragma once
// Sizes that kernels share with those who plan memory for them.
#include <cstdint>

namespace holdfast {

/// Tokens whose logits exist at a time; orders the additions of the head's gradient, so it belongs to the
/// run.
constexpr std::int64_t head_chunk = 1024;
/// Floats between inverse scales that products read: cuBLASLt 13's kernels for Hopper refuse a scale
/// (CUBLAS_STATUS_NOT_SUPPORTED) that does not lie on a boundary of 16 bytes.
constexpr int inverse_stride = 4;

}  // namespace holdfast
