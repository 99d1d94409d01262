#pragma once
// Every operator of training on the GPU: own kernels, and the libraries behind Gemm and AttentionEngine.
#include <span>
#include <string>

#include "src/cuda/attention/attention.hpp"
#include "src/cuda/gemm/gemm.hpp"
#include "src/cuda/runtime/runtime.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::cuda {

/// Streams are CudaStreams. A shape that a kernel cannot do is an Error (usage) at the call.
class CudaKernels final : public kernels::Kernels {
 public:
  using Stream = tensor::Stream;

  /// Enough for rows of 32768 columns in norms, 160 thousand in column_sums, and 5 million tokens.
  static constexpr std::int64_t scratch_bytes = std::int64_t{40} << 20;

  /// All outlive it. `scratch`: device memory, aligned to 16, for sums that are taken in parts; calls that
  /// need it follow one another on one stream. Without any, what takes no such sums (reduce, convert, adamw,
  /// ...) still works, on several streams at once.
  CudaKernels(Runtime& runtime, Gemm& gemm, AttentionEngine& attention, std::span<std::byte> scratch);

  /// While on, products are noted (Gemm::note) and nothing is enqueued.
  void take_notes(bool on) { taking_notes_ = on; }
  /// A name for the choices that `gemm` uses, part of the identity; "": none.
  void set_choices(std::string hash) { choices_ = std::move(hash); }

  std::string identity(DType type) const override;
  void matmul(Stream&, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, kernels::Write,
              ConstMat bias = {}) override;
  void column_sums(Stream&, float* out, ConstMat x) override;
  void quantize(Stream&, ConstMat x, const kernels::Quantize&) override;
  void amax(Stream&, ConstMat x, std::uint32_t* amax) override;
  void scales(Stream&, float* scale, float* inverse, const std::uint32_t* amax, DType type,
              int count) override;
  void matmul_fp8(Stream&, Mat y, ConstMat a, ConstMat b, const float* inverse_a, const float* inverse_b,
                  kernels::Write, ConstMat bias = {}) override;
  void rope(Stream&, const kernels::Rope&) override;
  std::int64_t workspace(const kernels::Attention&) const override;
  void attention(Stream&, const kernels::Attention&) override;
  void attention_backward(Stream&, const kernels::Attention&, const kernels::AttentionGradient&) override;
  void add(Stream&, Mat out, ConstMat a, ConstMat b) override;
  void norm(Stream&, const kernels::Norm&) override;
  void norm_backward(Stream&, const kernels::NormGradient&) override;
  void head_norm(Stream&, const kernels::HeadNorm&) override;
  void head_norm_backward(Stream&, const kernels::HeadNorm&, const kernels::HeadNormGradient&) override;
  void swiglu(Stream&, Mat out, ConstMat gate_up, const kernels::Quantize* quantize = nullptr) override;
  void swiglu_backward(Stream&, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) override;
  void dropout(Stream&, const kernels::Dropout&) override;
  void embed(Stream&, Mat out, ConstMat table, const std::int32_t* tokens) override;
  void embed_backward(Stream&, Mat d_table, ConstMat d_out, const std::int32_t* tokens,
                      kernels::Write) override;
  void head_loss(Stream&, const kernels::HeadLoss&) override;
  void convert(Stream&, void* out, DType to, const void* in, DType from, std::int64_t count) override;
  void decode_blocks(Stream&, void* out, DType to, BlockCode code, const std::byte* codes,
                     const float* scales, std::int64_t count) override;
  void add_up(Stream&, const kernels::OrderedSum&) override;
  void sum_squares(Stream&, const float* x, std::int64_t count, tensor::ExactSum* sum) override;
  void digest(Stream&, const void* x, DType type, std::int64_t first, std::int64_t count,
              kernels::DigestSums* sums) override;
  void adamw(Stream&, const kernels::AdamW&, const kernels::StepScalars&) override;

 private:
  /// work(stream's handle), unless notes are taken.
  template <class Work>
  void enqueue(Stream& stream, const Work& work) const;
  void multiply(Stream& stream, const Product& product);
  /// The scratch, if it has so many bytes.
  std::byte* scratch(std::int64_t bytes, const char* operation) const;

  Runtime& runtime_;
  Gemm& gemm_;
  AttentionEngine& attention_;
  std::span<std::byte> scratch_;
  std::string choices_;
  bool taking_notes_ = false;
};

}  // namespace holdfast::cuda
