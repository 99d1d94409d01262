// 8-bit copies on the CPU, and products of them: what a GPU would compute, so that training in 8 bits can be
// tested everywhere. An 8-bit number divided by its scale is a bf16 number, so a product is one of bf16.
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/fp8.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

constexpr std::int64_t tile = 64;  // rows of a task, and columns that are turned at a time

/// f.operator()<E4m3>() or f.operator()<E5m2>().
template <class F>
void with_fp8(DType type, const F& f) {
  if (type == DType::e4m3)
    f.template operator()<E4m3>();
  else
    f.template operator()<E5m2>();
}

template <class T>
HOLDFAST_VECTOR_WIDTHS std::uint32_t largest_bits(const T* x, std::int64_t n) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(to_float(x[i])) & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return most;
}

template <class T, class Q>
HOLDFAST_VECTOR_WIDTHS void quantize_row(Q* out, const T* x, float scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_fp8<Q>(to_float(x[i]) * scale);
}

template <class Q>
HOLDFAST_VECTOR_WIDTHS void widen_row(Bf16* out, const Q* x, float inverse, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = rounded<Bf16>(to_float(x[i]) * inverse);
}

/// out[c][r] = in[r][c] of one tile.
template <class Q>
void turn(Q* out, std::int64_t out_stride, const Q* in, std::int64_t stride, std::int64_t rows,
          std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c)
    for (std::int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * stride + c];
}

template <class T, class Q>
void quantize_rows(ConstMat x, const Quantize& q, float scale, std::int64_t first, std::int64_t rows) {
  alignas(64) Q own[tile * tile];
  for (std::int64_t c = 0; c < x.cols; c += tile) {
    const std::int64_t cols = std::min(tile, x.cols - c);
    Q* block = q.out ? q.out.row<Q>(first) + c : own;
    const std::int64_t stride = q.out ? q.out.stride : tile;
    for (std::int64_t r = 0; r < rows; ++r)
      quantize_row(block + r * stride, x.row<const T>(first + r) + c, scale, cols);
    if (q.transposed) turn(q.transposed.row<Q>(c) + first, q.transposed.stride, block, stride, rows, cols);
  }
}

}  // namespace

void CpuKernels::quantize(Stream& stream, ConstMat x, const Quantize& q) {
  const DType type = q.out ? q.out.type : q.transposed.type;
  expects(!q.out || (q.out.rows == x.rows && q.out.cols == x.cols), "quantize: the copy's shape");
  expects(!q.transposed || (q.transposed.rows == x.cols && q.transposed.cols == x.rows),
          "quantize: the transposed copy's shape");
  if (q.amax != nullptr) amax(stream, x, q.amax);
  if (!q.out && !q.transposed) return;
  expects(is_fp8(type) && (!q.out || !q.transposed || q.out.type == q.transposed.type),
          "quantize: copies are of one 8-bit type");
  const float scale = *q.scale;
  with_type(x.type, [&]<class T>() {
    with_fp8(type, [&]<class Q>() {
      run_tasks((x.rows + tile - 1) / tile, [&](std::int64_t task, int) {
        const std::int64_t first = task * tile;
        quantize_rows<T, Q>(x, q, scale, first, std::min(tile, x.rows - first));
      });
    });
  });
}

void CpuKernels::amax(Stream&, ConstMat x, std::uint32_t* amax) {
  // A maximum is the same in any order: threads only need room of their own.
  std::fill(largest_.begin(), largest_.end(), 0u);
  with_type(x.type, [&]<class T>() {
    run_tasks((x.rows + tile - 1) / tile, [&](std::int64_t task, int thread) {
      std::uint32_t& mine = largest_[thread];
      for (std::int64_t r = task * tile; r < std::min(x.rows, (task + 1) * tile); ++r)
        mine = std::max(mine, largest_bits(x.row<const T>(r), x.cols));
    });
  });
  for (const std::uint32_t bits : largest_) *amax = std::max(*amax, bits);
}

void CpuKernels::scales(Stream&, float* scale, float* inverse, const std::uint32_t* amax, DType type,
                        int count) {
  expects(is_fp8(type), "scales are of an 8-bit type");
  for (int i = 0; i < count; ++i) {
    scale[i] = fp8_scale(amax[i], type);
    inverse[i] = fp8_inverse(scale[i]);
  }
}

void CpuKernels::matmul_fp8(Stream& stream, Mat y, ConstMat a, ConstMat b, const float* inverse_a,
                            const float* inverse_b, Write write, ConstMat bias) {
  expects(is_fp8(a.type) && is_fp8(b.type) && !(a.type == DType::e5m2 && b.type == DType::e5m2),
          "matmul_fp8: 8-bit operands, not both e5m2");
  expects(!bias || bias.type == DType::bf16, "matmul_fp8: a bias is bf16");
  // Undoing a scale here rounds nothing and changes only exponents: the sums are those of the scaled numbers,
  // scaled.
  const ConstMat left = widen(fp8_left_, a, *inverse_a), right = widen(fp8_right_, b, *inverse_b);
  matmul(stream, y, left, false, right, true, write, bias);
}

ConstMat CpuKernels::widen(std::vector<Bf16>& room, ConstMat x, float inverse) const {
  const auto count = as_size(x.rows * x.cols);
  if (room.size() < count) room.resize(count);
  with_fp8(x.type, [&]<class Q>() {
    run_parts(x.rows, x.cols, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t r = first; r < end; ++r)
        widen_row(room.data() + r * x.cols, x.row<const Q>(r), inverse, x.cols);
    });
  });
  return tensor::dense(room.data(), x.rows, x.cols);
}

}  // namespace holdfast::kernels
