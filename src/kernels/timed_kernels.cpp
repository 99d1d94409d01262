#include "src/kernels/timed_kernels.hpp"

namespace holdfast::kernels {
namespace {

using tensor::Work;

double product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// QK^T and PV of the causal half, as if there were one document per row.
double causal_flops(const Attention& a) {
  return product(a.qkv.rows, a.sequence, static_cast<std::int64_t>(a.heads) * a.head_size);
}

}  // namespace

void TimedKernels::matmul(Stream& s, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b,
                          Write write, ConstMat bias) {
  time(
      s, Work::matmul,
      transpose_a   ? "weight gradient"
      : transpose_b ? "linear"
                    : "input gradient",
      [&] { kernels_.matmul(s, y, a, transpose_a, b, transpose_b, write, bias); },
      product(y.rows, y.cols, transpose_a ? a.rows : a.cols));
}
void TimedKernels::column_sums(Stream& s, float* out, ConstMat x) {
  time(s, Work::pointwise, "bias gradient", [&] { kernels_.column_sums(s, out, x); });
}
void TimedKernels::quantize(Stream& s, ConstMat x, const Quantize& q) {
  time(s, Work::pointwise, "quantize", [&] { kernels_.quantize(s, x, q); });
}
void TimedKernels::amax(Stream& s, ConstMat x, std::uint32_t* amax) {
  time(s, Work::pointwise, "amax", [&] { kernels_.amax(s, x, amax); });
}
void TimedKernels::scales(Stream& s, float* scale, float* inverse, const std::uint32_t* amax, DType type,
                          int count) {
  time(s, Work::pointwise, "scales", [&] { kernels_.scales(s, scale, inverse, amax, type, count); });
}
void TimedKernels::matmul_fp8(Stream& s, Mat y, ConstMat a, ConstMat b, const float* inverse_a,
                              const float* inverse_b, Write write, ConstMat bias) {
  time(
      s, Work::matmul,
      y.type == DType::fp32                            ? "weight gradient"
      : a.type == DType::e4m3 && b.type == DType::e4m3 ? "linear"
                                                       : "input gradient",
      [&] { kernels_.matmul_fp8(s, y, a, b, inverse_a, inverse_b, write, bias); },
      product(y.rows, y.cols, a.cols));
}
void TimedKernels::rope(Stream& s, const Rope& r) {
  time(s, Work::pointwise, "rope", [&] { kernels_.rope(s, r); });
}
void TimedKernels::attention(Stream& s, const Attention& a) {
  time(
      s, Work::attention, "attention", [&] { kernels_.attention(s, a); }, causal_flops(a));
}
void TimedKernels::attention_backward(Stream& s, const Attention& a, const AttentionGradient& g) {
  time(
      s, Work::attention, "attention backward", [&] { kernels_.attention_backward(s, a, g); },
      2.5 * causal_flops(a));  // five products where the forward pass has two
}
void TimedKernels::norm(Stream& s, const Norm& n) {
  time(s, Work::pointwise, "norm", [&] { kernels_.norm(s, n); });
}
void TimedKernels::norm_backward(Stream& s, const NormGradient& g) {
  time(s, Work::pointwise, "norm backward", [&] { kernels_.norm_backward(s, g); });
}
void TimedKernels::add(Stream& s, Mat out, ConstMat a, ConstMat b) {
  time(s, Work::pointwise, "add", [&] { kernels_.add(s, out, a, b); });
}
void TimedKernels::head_norm(Stream& s, const HeadNorm& n) {
  time(s, Work::pointwise, "head norm", [&] { kernels_.head_norm(s, n); });
}
void TimedKernels::head_norm_backward(Stream& s, const HeadNorm& n, const HeadNormGradient& g) {
  time(s, Work::pointwise, "head norm backward", [&] { kernels_.head_norm_backward(s, n, g); });
}
void TimedKernels::swiglu(Stream& s, Mat out, ConstMat gate_up, const Quantize* quantize) {
  time(s, Work::pointwise, "swiglu", [&] { kernels_.swiglu(s, out, gate_up, quantize); });
}
void TimedKernels::swiglu_backward(Stream& s, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) {
  time(s, Work::pointwise, "swiglu backward",
       [&] { kernels_.swiglu_backward(s, d_gate_up, d_out, gate_up); });
}
void TimedKernels::dropout(Stream& s, const Dropout& d) {
  time(s, Work::pointwise, "dropout", [&] { kernels_.dropout(s, d); });
}
void TimedKernels::embed(Stream& s, Mat out, ConstMat table, const std::int32_t* tokens) {
  time(s, Work::pointwise, "embed", [&] { kernels_.embed(s, out, table, tokens); });
}
void TimedKernels::embed_backward(Stream& s, Mat d_table, ConstMat d_out, const std::int32_t* tokens,
                                  Write write) {
  time(s, Work::pointwise, "embed backward",
       [&] { kernels_.embed_backward(s, d_table, d_out, tokens, write); });
}
void TimedKernels::head_loss(Stream& s, const HeadLoss& h) {
  const int products = h.d_hidden ? (h.d_head ? 3 : 2) : 1;
  time(
      s, Work::head, "head and loss", [&] { kernels_.head_loss(s, h); },
      products * product(h.hidden.rows, h.head.rows, h.head.cols));
}
void TimedKernels::convert(Stream& s, void* out, DType to, const void* in, DType from, std::int64_t count) {
  time(s, Work::pointwise, "convert", [&] { kernels_.convert(s, out, to, in, from, count); });
}
void TimedKernels::decode_blocks(Stream& s, void* out, DType to, BlockCode code, const std::byte* codes,
                                 const float* scales, std::int64_t count) {
  time(s, Work::pointwise, "decode", [&] { kernels_.decode_blocks(s, out, to, code, codes, scales, count); });
}
void TimedKernels::add_up(Stream& s, const OrderedSum& sum) {
  time(s, Work::pointwise, nullptr, [&] { kernels_.add_up(s, sum); });
}
void TimedKernels::digest(Stream& s, const void* x, DType type, std::int64_t first, std::int64_t count,
                          DigestSums* sums) {
  time(s, Work::optimizer, "digest", [&] { kernels_.digest(s, x, type, first, count, sums); });
}
void TimedKernels::sum_squares(Stream& s, const float* x, std::int64_t count, ExactSum* sum) {
  time(s, Work::optimizer, "gradient norm", [&] { kernels_.sum_squares(s, x, count, sum); });
}
void TimedKernels::adamw(Stream& s, const AdamW& a, const StepScalars& scalars) {
  time(s, Work::optimizer, "adamw", [&] { kernels_.adamw(s, a, scalars); });
}

}  // namespace holdfast::kernels
