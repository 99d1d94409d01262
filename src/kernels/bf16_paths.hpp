#pragma once
// The implementations of Bf16Blocks, one per file; private to src/kernels/bf16_*.cpp. Null when the processor
// does not have the instructions or the compiler does not know them.
#include "src/kernels/bf16_block.hpp"

namespace holdfast::kernels {

const Bf16Blocks& portable_blocks();
const Bf16Blocks* avx512_blocks();
const Bf16Blocks* amx_blocks();

}  // namespace holdfast::kernels
