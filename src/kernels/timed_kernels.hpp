#pragma once
// Kernels that say how long they took, and a stream that says how long it was waited for. On the CPU a call
// is done when it returns, so a reading of the clock before and after it is the truth. On another device that
// would be so only if everybody waited for it: that is done while a step is traced, and nothing is timed
// else.
#include "src/kernels/kernels.hpp"
#include "src/tensor/profile.hpp"

namespace holdfast::kernels {

class TimedKernels final : public Kernels {
 public:
  /// Both outlive it. `enqueues`: calls return before the work is done.
  TimedKernels(Kernels& kernels, tensor::Profile& profile, bool enqueues = false)
      : kernels_(kernels), profile_(profile), enqueues_(enqueues) {}

  std::string identity(DType type) const override { return kernels_.identity(type); }
  void matmul(Stream&, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write,
              ConstMat bias = {}) override;
  void column_sums(Stream&, float* out, ConstMat x) override;
  void quantize(Stream&, ConstMat x, const Quantize&) override;
  void amax(Stream&, ConstMat x, std::uint32_t* amax) override;
  void scales(Stream&, float* scale, float* inverse, const std::uint32_t* amax, DType type,
              int count) override;
  void matmul_fp8(Stream&, Mat y, ConstMat a, ConstMat b, const float* inverse_a, const float* inverse_b,
                  Write, ConstMat bias = {}) override;
  void rope(Stream&, const Rope&) override;
  std::int64_t workspace(const Attention& a) const override { return kernels_.workspace(a); }
  void attention(Stream&, const Attention&) override;
  void attention_backward(Stream&, const Attention&, const AttentionGradient&) override;
  void add(Stream&, Mat out, ConstMat a, ConstMat b) override;
  void norm(Stream&, const Norm&) override;
  void norm_backward(Stream&, const NormGradient&) override;
  void head_norm(Stream&, const HeadNorm&) override;
  void head_norm_backward(Stream&, const HeadNorm&, const HeadNormGradient&) override;
  void swiglu(Stream&, Mat out, ConstMat gate_up, const Quantize* quantize = nullptr) override;
  void swiglu_backward(Stream&, Mat d_gate_up, ConstMat d_out, ConstMat gate_up) override;
  void dropout(Stream&, const Dropout&) override;
  void embed(Stream&, Mat out, ConstMat table, const std::int32_t* tokens) override;
  void embed_backward(Stream&, Mat d_table, ConstMat d_out, const std::int32_t* tokens, Write) override;
  void head_loss(Stream&, const HeadLoss&) override;
  void convert(Stream&, void* out, DType to, const void* in, DType from, std::int64_t count) override;
  void decode_blocks(Stream&, void* out, DType to, BlockCode code, const std::byte* codes,
                     const float* scales, std::int64_t count) override;
  void add_up(Stream&, const OrderedSum&) override;
  void sum_squares(Stream&, const float* x, std::int64_t count, ExactSum* sum) override;
  void digest(Stream&, const void* x, DType type, std::int64_t first, std::int64_t count,
              DigestSums* sums) override;
  void adamw(Stream&, const AdamW&, const StepScalars&) override;

 private:
  template <class Task>
  void time(Stream& stream, tensor::Work work, const char* name, const Task& task, double flops = 0) {
    if (!enqueues_) return profile_.time(work, name, task, flops);
    if (!profile_.tracing()) return task();
    profile_.time(
        work, name, [&] { task(), stream.record().wait(); }, flops);
  }

  Kernels& kernels_;
  tensor::Profile& profile_;
  const bool enqueues_;
};

/// The compute stream of the CPU, with the time that was spent waiting for other timelines.
class TimedStream final : public tensor::InlineStream {
 public:
  explicit TimedStream(tensor::Profile& profile) : profile_(profile) {}
  void wait(const tensor::Event& event) override {
    if (!event.passed()) profile_.time(tensor::Work::waiting, "wait", [&] { event.wait(); });
  }

 private:
  tensor::Profile& profile_;
};

}  // namespace holdfast::kernels
