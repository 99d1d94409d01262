#pragma once
// The CPU backend's class; private to src/kernels/cpu_*.cpp, which make it through make_cpu_kernels().
#include <omp.h>

#include <algorithm>
#include <vector>

#include "src/kernels/bf16_matmul.hpp"
#include "src/kernels/kernels.hpp"

namespace holdfast::kernels {

/// One thread for OpenBLAS calls of this scope: its OpenMP build asks OpenMP how many it may use.
class SerialBlas {
 public:
  SerialBlas() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SerialBlas() { omp_set_num_threads(before_); }
  SerialBlas(const SerialBlas&) = delete;
  SerialBlas& operator=(const SerialBlas&) = delete;

 private:
  int before_;
};

class CpuKernels final : public Kernels {
 public:
  /// `blocks`: how bf16 is multiplied.
  CpuKernels(int threads, const Bf16Blocks& blocks);
  std::string identity(DType) const override;

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
  std::int64_t workspace(const Attention&) const override;
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
  /// Runs task(i, thread) for i in [0, tasks) on the threads, in any order: tasks write disjoint results.
  /// Inside, OpenBLAS is serial; `thread` < threads_ numbers the scratch memory.
  template <class Task>
  void run_tasks(std::int64_t tasks, const Task& task) const {
    if (threads_ == 1 || tasks <= 1) {
      const SerialBlas serial;
      for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
      return;
    }
    const int team = static_cast<int>(std::min<std::int64_t>(threads_, tasks));
#pragma omp parallel num_threads(team)
    {
      omp_set_num_threads(1);  // of this thread in this region
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t i = 0; i < tasks; ++i) task(i, omp_get_thread_num());
    }
  }
  /// part(first, end) for pieces of [0, count), `cost` elements of work per item. Only for work whose results
  /// do not depend on where it is cut.
  template <class Part>
  void run_parts(std::int64_t count, std::int64_t cost, const Part& part) const {
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, cost));
    run_tasks((count + grain - 1) / grain,
              [&](std::int64_t i, int) { part(i * grain, std::min(count, (i + 1) * grain)); });
  }

  void matmul_bf16(Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write, ConstMat bias);
  void matmul_fp32(Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write, ConstMat bias);

  /// x * inverse as dense bf16 in `room`, which grows to the largest operand.
  ConstMat widen(std::vector<tensor::Bf16>& room, ConstMat x, float inverse) const;

  /// Sums over tokens: every block of tokens has its part [cols] of the scratch, then the total is taken.
  float* room_for_parts(std::int64_t count);
  void total(float* out, const float* parts, std::int64_t blocks, std::int64_t cols) const;

  int threads_;
  const Bf16Blocks& blocks_;
  Bf16Scratch bf16_scratch_;
  std::vector<float> parts_;                        ///< grows to the largest shape that was asked for
  std::vector<float> tiles_;                        ///< one fp32 product tile per thread, for Write::add
  std::vector<tensor::Bf16> fp8_left_, fp8_right_;  ///< 8-bit operands as bf16
  std::vector<std::uint32_t> largest_;              ///< one per thread, for amax()
};

}  // namespace holdfast::kernels
