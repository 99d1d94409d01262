// Sources of the numbers. The file has three kinds: rates, typical, fast and slow; what depends on a size
// (tiles of a product, the figures of attention, hops of a ring); and the formulas that join them with a
// GPU's data sheet.
//
// - Products: docs/gpu-runs.md, one H100 SXM at the shapes of Llama 2 7B, 8,192 tokens, forward and backward:
//   687 to 803 TFLOP/s where all multiprocessors have work, 725 on the average, so 0.73 of the peak; 8-bit
//   products of 8192^3 reach 1,420 against 785 in bf16. The slow end: 639 TFLOP/s (PyTorch's issue 100850, an
//   H100 in 2023).
// - A product's ramp: matrices of 1024^3 and 2048^3 on an H100 take 1 to 3 us longer than their tiles do
//   (PyTorch 2.7, CUDA 12.8: zzc0721/torch-performance-test-data, issue 79).
// - Attention: Shah et al., "FlashAttention-3" (2024), figures of an H100 SXM, heads of 128: forward with the
//   causal mask; backward without it, read at half of the sequence, which is how long a causal row is on the
//   average. Heads of 64: 0.84 of it (the same figures, backward). Ours: docs/gpu-runs.md, at 4,096; the fast
//   end is what the figures say. The slow end: PyTorch's own FlashAttention-2 reaches 300 TFLOP/s where the
//   figure has 370 (pytorch/benchmark, pull request 2296).
// - Memory: docs/gpu-runs.md: a copy moves 2.97 of 3.35 TB/s; 2.7 to 3.1 among kernels.
// - Links: NCCL reaches 370 of 450 GB/s over NVLink (its author, nccl-tests issue 212); 330 (nccl 1221).
//   Between nodes of eight adapters 360 of 400 GB/s (nccl 1229); 200 (nccl 1218).
// - Latencies: NCCL's own model of a ring, src/graph/tuning.cc as of 2020: 8.4 us, and for each further
//   member 3.4 us over NVLink, 5.7 over PCIe, 9.6 over a network. With them 360 GB/s at 4 nodes become 260 at
//   128 for messages of 4 GB; nccl 1229 reports the same.
// - Multiprocessors: collectives take 16 to 32 (Megatron Core on its FSDP).
// - Clock: with collectives beside products an H100's falls from 1,980 to 1,575 MHz, to stay within its power
//   (DeepGEMM's issue 120).
// - Launches: 3.4 us for a kernel of 2.9 in a CUDA graph, 3.8 in a stream (NVIDIA, "Getting started with CUDA
//   graphs", 2019).
#include "launcher/foresee/rates.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace holdfast::launcher {
namespace {

constexpr double tile_rows = 128, tile_columns = 256;
constexpr double product_ramp_s = 2e-6;
constexpr double ring_s = 8.4e-6, nvlink_hop_s = 3.4e-6, pcie_hop_s = 5.7e-6, network_hop_s = 9.6e-6;

/// TFLOP/s on an H100 SXM for sequences of 512, 1k, ... 16k.
using Figure = std::array<double, 6>;
constexpr double figure_peak = 989.4;
constexpr double shortest = 512;
constexpr Figure cudnn_forward = {315, 410, 484, 518, 529, 539},
                 cudnn_backward = {305, 408, 465, 499, 518, 516},
                 flash2_forward = {191, 260, 298, 319, 333, 335},
                 flash2_backward = {214, 260, 291, 310, 318, 322};
// Measured at 4,096 over what the figures say there.
constexpr double ours_forward = 455.0 / 518, ours_backward = 420.0 / 465, ours_deterministic = 225.0 / 465;
constexpr double small_heads = 0.84;

double read_off(const Figure& figure, double sequence) {
  const double at = std::clamp(std::log2(sequence / shortest), 0.0, figure.size() - 1.0);
  const auto left = std::min(static_cast<int>(at), static_cast<int>(figure.size()) - 2);
  return figure[left] + (at - left) * (figure[left + 1] - figure[left]);
}

}  // namespace

Rates typical_rates() {
  return {.bf16_products = 0.73,
          .fp8_products = 0.66,
          .attention = 1,
          .memory = 0.89,
          .link = 0.82,
          .network = 0.90,
          .taken = 24,
          .clock_beside = 0.80,
          .launch_s = 0.5e-6};
}

Rates fast_rates() {
  return {.bf16_products = 0.81,
          .fp8_products = 0.74,
          .attention = 1.1,
          .memory = 0.92,
          .link = 0.82,
          .network = 0.90,
          .taken = 16,
          .clock_beside = 1,
          .launch_s = 0.5e-6};
}

Rates slow_rates() {
  return {.bf16_products = 0.65,
          .fp8_products = 0.58,
          .attention = 0.8,
          .memory = 0.81,
          .link = 0.73,
          .network = 0.50,
          .taken = 32,
          .clock_beside = 0.80,
          .launch_s = 0.9e-6};
}

double product_s(const GpuKind& gpu, const Rates& rates, bool fp8, double m, double n, double k) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const double tiles = std::ceil(m / tile_rows) * std::ceil(n / tile_columns);
  const double waves = tiles / gpu.multiprocessors;
  const bool in_8_bits = fp8 && gpu.fp8_flops > 0;
  const double peak = in_8_bits ? gpu.fp8_flops * rates.fp8_products : gpu.bf16_flops * rates.bf16_products;
  const double computing = 2 * m * n * k / peak * std::ceil(waves) / waves;
  const double moving = stream_s(gpu, rates, (in_8_bits ? 1 : 2) * (m * k + k * n) + 2 * m * n);
  return std::max(computing, moving) + product_ramp_s;
}

double attention_share(Attention kernel, bool backward, int sequence, int head_size) {
  const bool flash2 = kernel == Attention::flash2;
  const double tflops = backward ? read_off(flash2 ? flash2_backward : cudnn_backward, sequence / 2.0)
                                 : read_off(flash2 ? flash2_forward : cudnn_forward, sequence);
  double of_figure = 1;
  if (kernel == Attention::ours || kernel == Attention::ours_deterministic) of_figure = ours_forward;
  if (backward && kernel == Attention::ours) of_figure = ours_backward;
  if (backward && kernel == Attention::ours_deterministic) of_figure = ours_deterministic;
  return tflops / figure_peak * of_figure * (head_size <= 64 ? small_heads : 1);
}

double stream_s(const GpuKind& gpu, const Rates& rates, double bytes) {
  return bytes / (gpu.memory_bytes_s * rates.memory);
}

double collective_s(const GpuKind& gpu, const Rates& rates, double adapter_bytes_s, Members members,
                    double bytes) {
  if (members.all <= 1 || bytes <= 0) return 0;
  const bool nvlink = gpu.link_bytes_s > 0;
  const int nodes = members.nodes();
  const double inside = (nvlink ? gpu.link_bytes_s : gpu.pcie_bytes_s) * rates.link;
  const double between = adapter_bytes_s * std::min(members.all, members.of_node) * rates.network;
  const double bandwidth = nodes == 1 ? inside : members.of_node == 1 ? between : std::min(inside, between);
  const double latency =
      ring_s + (members.all - nodes) * (nvlink ? nvlink_hop_s : pcie_hop_s) + (nodes - 1) * network_hop_s;
  return latency + bytes * (members.all - 1) / members.all / bandwidth;
}

}  // namespace holdfast::launcher
