// Causal attention on the CPU: checks the arguments, chooses by type and spreads the tasks over the threads.
#include "src/kernels/cpu_attention.hpp"

#include <fmt/core.h>

#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_attention_bf16.hpp"
#include "src/kernels/cpu_attention_fp32.hpp"
#include "src/kernels/cpu_attention_rows.hpp"

namespace holdfast::kernels {

namespace {

void check(const Attention& a) {
  expects(a.sequence > 0 && a.qkv.rows % a.sequence == 0, "attention: whole rows");
  expects(a.heads % a.kv_heads == 0, "attention: key heads divide query heads");
  expects(a.qkv.cols == static_cast<std::int64_t>(a.heads + 2 * a.kv_heads) * a.head_size,
          "attention: packed columns");
  expects(a.out.cols == static_cast<std::int64_t>(a.heads) * a.head_size && a.out.rows == a.qkv.rows,
          "attention: the output's shape");
  expects(a.out.type == a.qkv.type, "attention: one type");
  expects(a.workspace != nullptr && a.log_sum != nullptr, "attention: workspace and log_sum are given");
}
void check(const Attention& a, const AttentionGradient& g) {
  check(a);
  expects(g.d_out.rows == a.out.rows && g.d_out.cols == a.out.cols, "attention: the shape of d_out");
  expects(g.d_qkv.rows == a.qkv.rows && g.d_qkv.cols == a.qkv.cols, "attention: the shape of d_qkv");
  expects(g.d_out.type == a.qkv.type && g.d_qkv.type == a.qkv.type, "attention: one type");
}

}  // namespace

std::string attention_identity(DType type) {
  // In bf16 no sum depends on where blocks end; in fp32 it is OpenBLAS that adds within them.
  return type == DType::fp32 ? fmt::format("attention 1 in blocks of {}", Fp32Attention::block)
                             : fmt::format("attention 1 in lanes of {}", row_group);
}

std::int64_t CpuKernels::workspace(const Attention& a) const {
  if (a.qkv.type == DType::fp32) return Fp32Attention(a).workspace(threads_);
  const AttentionGradient none;
  const Bf16AttentionBackward backward(a, none, bf16_blocks(), Bf16AttentionBackward::quicker(a, threads_));
  return std::max(Bf16AttentionForward(a, bf16_blocks()).workspace(threads_), backward.workspace(threads_));
}

void CpuKernels::attention(Stream&, const Attention& a) {
  check(a);
  if (a.qkv.type == DType::fp32) {
    const Fp32Attention fp32(a);
    run_tasks(fp32.strip_tasks(), [&](std::int64_t task, int thread) { fp32.strip(task, thread); });
    return;
  }
  const Bf16AttentionForward bf16(a, bf16_blocks());
  run_tasks(bf16.pack_tasks(), [&](std::int64_t task, int) { bf16.pack(task); });
  run_tasks(bf16.tasks(), [&](std::int64_t task, int thread) { bf16.run(task, thread); });
}

void CpuKernels::attention_backward(Stream&, const Attention& a, const AttentionGradient& g) {
  check(a, g);
  if (a.qkv.type == DType::fp32) {
    const Fp32Attention fp32(a);
    run_tasks(fp32.head_tasks(), [&](std::int64_t task, int thread) { fp32.head_backward(g, task, thread); });
    return;
  }
  const Bf16AttentionBackward bf16(a, g, bf16_blocks(), Bf16AttentionBackward::quicker(a, threads_));
  run_tasks(bf16.pack_tasks(), [&](std::int64_t task, int) { bf16.pack(task); });
  run_tasks(bf16.tasks(), [&](std::int64_t task, int thread) { bf16.run(task, thread); });
}

}  // namespace holdfast::kernels
