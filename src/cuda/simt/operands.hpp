#pragma once
// What launchers of kernels ask and say of their operands.
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

using tensor::Bf16;
using tensor::ConstMat;
using tensor::DType;
using tensor::E4m3;
using tensor::E5m2;
using tensor::Mat;

/// Bytes from a matrix's first element to its last, gaps between rows included; 0: no matrix.
inline std::int64_t span_bytes(const ConstMat& m) {
  return !m || m.rows == 0 ? 0 : ((m.rows - 1) * m.stride + m.cols) * bytes_of(m.type);
}
inline Access reads(const ConstMat& m) { return reads(m.data, span_bytes(m)); }
inline Access writes(const ConstMat& m) { return writes(m.data, span_bytes(m)); }

/// Every row consists of packs of `pack` elements, aligned to their bytes (from 16 bytes on: to 16). So it is
/// for a matrix that is not there.
inline bool whole_packs(const ConstMat& m, std::int64_t pack) {
  const std::int64_t bytes = pack * bytes_of(m.type), alignment = bytes < 16 ? bytes : 16;
  return !m || (m.cols % pack == 0 && m.stride % pack == 0 &&
                reinterpret_cast<std::uintptr_t>(m.data) % static_cast<std::uintptr_t>(alignment) == 0);
}

/// f.operator()<float>() or f.operator()<Bf16>().
template <class F>
void with_element(DType type, const F& f) {
  expects(type == DType::fp32 || type == DType::bf16, "elements are fp32 or bf16");
  if (type == DType::fp32)
    f.template operator()<float>();
  else
    f.template operator()<Bf16>();
}
/// f.operator()<E4m3>(), <E5m2>(), or <void>() when there is no 8-bit copy.
template <class F>
void with_copy(const kernels::Quantize* quantize, const F& f) {
  if (quantize == nullptr || !quantize->out) return f.template operator()<void>();
  expects(is_fp8(quantize->out.type), "the copy is e4m3 or e5m2");
  if (quantize->out.type == DType::e4m3)
    f.template operator()<E4m3>();
  else
    f.template operator()<E5m2>();
}

}  // namespace holdfast::cuda
