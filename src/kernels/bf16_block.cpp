// What all paths of Bf16Blocks share: panels one after the other, and the choice of the path.
#include "src/kernels/bf16_block.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/kernels/bf16_paths.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {
bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % Bf16Blocks::alignment == 0;
}

HOLDFAST_VECTOR_WIDTHS void finish_row(Bf16* y, const float* sums, const Bf16* bias, std::int64_t count) {
  if (bias == nullptr)
    for (std::int64_t c = 0; c < count; ++c) y[c] = tensor::to_bf16(sums[c]);
  else
    for (std::int64_t c = 0; c < count; ++c) y[c] = tensor::to_bf16(sums[c] + tensor::to_float(bias[c]));
}
HOLDFAST_VECTOR_WIDTHS void finish_row(float* y, const float* sums, const Bf16* bias, bool add,
                                       std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    const float sum = bias == nullptr ? sums[c] : sums[c] + tensor::to_float(bias[c]);
    y[c] = add ? y[c] + sum : sum;
  }
}
}  // namespace

Bf16Panels Bf16Blocks::pack_left(std::byte* packed, const Bf16* source, std::int64_t stride, bool transposed,
                                 std::int64_t rows, std::int64_t k) const {
  expects(is_aligned(packed), "packed operands are aligned");
  pack_left_panels(packed, source, stride, !transposed, rows, k);
  return {packed, depth_of(k)};
}

Bf16Panels Bf16Blocks::pack_right(std::byte* packed, const Bf16* source, std::int64_t stride, bool transposed,
                                  std::int64_t k, std::int64_t cols) const {
  expects(is_aligned(packed), "packed operands are aligned");
  const std::int64_t bytes = right_panel_bytes(depth_of(k));
  for (std::int64_t c = 0, panel = 0; c < cols; c += right_width, ++panel)
    pack_right_panel(packed + panel * bytes, transposed ? source + c * stride : source + c, stride,
                     transposed, std::min(right_width, cols - c), k);
  return {packed, depth_of(k)};
}

void Bf16Blocks::product(float* c, std::int64_t stride, Bf16Panels left, Bf16Panels right, std::int64_t rows,
                         std::int64_t cols, std::int64_t k, bool accumulate) const {
  if (k == 0) {
    if (!accumulate)
      for (std::int64_t r = 0; r < rows; ++r) std::fill_n(c + r * stride, cols, 0.0f);
    return;
  }
  begin();
  // A right panel stays in the cache while the left ones pass.
  for (std::int64_t j = 0; j < cols; j += right_width) {
    const std::byte* right_panel = right_at(right, 0, j).data;
    for (std::int64_t i = 0; i < rows; i += left_width_)
      panel_product(c + i * stride + j, stride, left_at(left, i, 0).data, right_panel,
                    std::min(left_width_, rows - i), std::min(right_width, cols - j), k, accumulate);
  }
  end();
}

void Bf16Blocks::finish(Bf16* y, std::int64_t y_stride, const float* sums, std::int64_t stride,
                        const Bf16* bias, std::int64_t rows, std::int64_t cols) const {
  for (std::int64_t r = 0; r < rows; ++r) finish_row(y + r * y_stride, sums + r * stride, bias, cols);
}
void Bf16Blocks::finish(float* y, std::int64_t y_stride, const float* sums, std::int64_t stride,
                        const Bf16* bias, bool add, std::int64_t rows, std::int64_t cols) const {
  for (std::int64_t r = 0; r < rows; ++r) finish_row(y + r * y_stride, sums + r * stride, bias, add, cols);
}

const Bf16Blocks* bf16_blocks(Bf16Path path) {
  switch (path) {
    case Bf16Path::portable:
      return &portable_blocks();
    case Bf16Path::avx512:
      return avx512_blocks();
    case Bf16Path::amx:
      return amx_blocks();
  }
  return nullptr;
}

const Bf16Blocks& bf16_blocks() {
  static const Bf16Blocks& best = [&]() -> const Bf16Blocks& {
    if (const Bf16Blocks* amx = amx_blocks()) return *amx;
    if (const Bf16Blocks* avx512 = avx512_blocks()) return *avx512;
    return portable_blocks();
  }();
  return best;
}

std::string bf16_identity(const Bf16Blocks& blocks) {
  return fmt::format("bf16 products 1 by {}", blocks.name());
}

}  // namespace holdfast::kernels
