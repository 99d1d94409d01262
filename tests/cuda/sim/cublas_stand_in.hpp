#pragma once
// Stands in for the cuBLASLt library (and the few CUDA calls around it) where there is no GPU: cublas_*.cpp
// link it and run on the simulator. It holds callers to what the library's documentation asks for, multiplies
// column-major matrices, and offers the algorithms that a test wants.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda::sim {

// The library's numbers, for those who cannot include its header: it and the simulator's simt.hpp define the
// same names.
constexpr std::uint32_t reduction_in_place = 1, reduction_in_fp32 = 2, reduction_in_output_type = 4;
constexpr std::uint64_t inputs_as_tf32 = 0x04ull << 16;

struct OfferedAlgorithm {
  int id = 0;
  int split_k = 1;
  std::uint32_t reduction = 0;  ///< cublasLtReductionScheme_t
  std::uint64_t workspace = 0;  ///< bytes
  std::uint64_t numerics = 0;   ///< CUBLASLT_NUMERICAL_IMPL_FLAGS_*
  double microseconds = 1000;   ///< of one launch
  bool supported = true;        ///< state of the heuristic's result, and what a check of the algorithm says
  bool launches = true;
  bool steady = true;      ///< the same bits every time
  bool adds_whole = true;  ///< what it adds is the whole product
};

/// What the stand-in does and has seen; tests set and read it.
struct CublasStandIn {
  bool starts = true;  ///< cublasLtCreate()
  std::vector<OfferedAlgorithm> offers;
  std::size_t version = 130100;

  std::vector<int> launched;         ///< ids, in order
  int heuristics = 0, checks = 0;    ///< calls
  std::uint32_t reduction_mask = 0;  ///< of the latest preference
  std::uint32_t alignment_a = 0, alignment_b = 0, alignment_d = 0;
  void* workspace = nullptr;  ///< of the latest launch
};
CublasStandIn& cublas_stand_in();

/// A host function as an operation of the stream, on the simulated GPU of test_gpu.hpp.
void enqueue_host_work(StreamHandle stream, const char* name, std::span<const Access> accesses,
                       std::function<void()> work);
/// Runs what is enqueued on the stream.
void run_stream(StreamHandle stream);

}  // namespace holdfast::cuda::sim
