#pragma once
// GPUs whose data sheets are known: what `holdfast plan` foresees a step by. Pure. A new kind is a row in
// gpu_kinds.cpp.
#include <span>
#include <string_view>

namespace holdfast::launcher {

/// Numbers of one GPU, without sparsity. Bandwidths of links are of one direction.
struct GpuKind {
  std::string_view name;
  double bf16_flops = 0, fp8_flops = 0;  ///< per second, of matrix products; fp8 0: it has none
  double memory_bytes = 0, memory_bytes_s = 0;
  double link_bytes_s = 0;  ///< NVLink to any other GPU of the node; 0: none, or to one neighbour only
  double pcie_bytes_s = 0;
  double watts = 0;  ///< of the board
  int multiprocessors = 0;
  bool operator==(const GpuKind&) const = default;
};

std::span<const GpuKind> gpu_kinds();

/// By the name that a cluster file or a driver gives it: "h100", "H100 PCIe", "NVIDIA H100 80GB HBM3". Null:
/// none of these, or a part of one (MIG).
const GpuKind* gpu_kind_called(std::string_view name);

}  // namespace holdfast::launcher
