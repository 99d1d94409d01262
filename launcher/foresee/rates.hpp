#pragma once
// How fast a GPU and its links really are: shares of what data sheets promise, as small benchmarks of single
// operators found them (rates.cpp has each number's source). None was fitted to a training run. Pure.
#include "launcher/foresee/gpu_kinds.hpp"

namespace holdfast::launcher {

/// Kernels for attention.
enum class Attention { ours, ours_deterministic, cudnn, flash2 };

struct Rates {
  double bf16_products = 0, fp8_products = 0;  ///< of the peak, where all multiprocessors have work
  double attention = 1;                        ///< of attention_share()
  double memory = 0;                           ///< of the memory's bandwidth, of what streams
  double link = 0, network = 0;                ///< of NVLink's or PCIe's bandwidth, and of the adapter's
  double taken = 0;                            ///< multiprocessors that collectives occupy
  double clock_beside = 1;                     ///< of the clock, where collectives share the board's power
  double launch_s = 0;                         ///< between two kernels
};
/// Typical, and the two ends of what was found.
Rates typical_rates();
Rates fast_rates();
Rates slow_rates();

/// A product of an m x k and a k x n matrix. Tiles of 128 x 256 go to the multiprocessors in waves, of which
/// the last one may be nearly empty.
double product_s(const GpuKind& gpu, const Rates& rates, bool fp8, double m, double n, double k);
/// The part of the bf16 peak that causal attention reaches.
double attention_share(Attention kernel, bool backward, int sequence, int head_size);
/// Bytes read and written.
double stream_s(const GpuKind& gpu, const Rates& rates, double bytes);

/// Members of a group, and how many of them share a node.
struct Members {
  int all = 1, of_node = 1;
  int nodes() const { return (all + of_node - 1) / of_node; }
};
/// An all-gather of `bytes` in all, or a reduce-scatter of as many from each member. `adapter_bytes_s`: of
/// one GPU's network adapter.
double collective_s(const GpuKind& gpu, const Rates& rates, double adapter_bytes_s, Members members,
                    double bytes);

}  // namespace holdfast::launcher
