#pragma once
// Finds the fastest algorithm for a product by timing what the library offers.
//
// As in training, operands come from memory, not from the cache: they rotate through copies that are together
// larger than the L2 cache. They hold random numbers, because a GPU clocks higher on zeros. Candidates take
// turns, so that a clock that drifts hits all of them, and the median of the turns counts.
#include <optional>
#include <vector>

#include "src/cuda/gemm/cublas_problem.hpp"

namespace holdfast::cuda {

class CublasSearch {
 public:
  CublasSearch(Runtime& runtime, cublasLtHandle_t handle, const CublasRules& rules);
  ~CublasSearch();
  CublasSearch(const CublasSearch&) = delete;
  CublasSearch& operator=(const CublasSearch&) = delete;

  /// Scratch memory is taken for the call only; where it does not fit, the library's favourite is taken
  /// unmeasured. A candidate that fails is left out, and in deterministic mode also a winner that gives other
  /// bits when asked again, or that does not add a whole product. Throws Error (runtime) with the shape when
  /// none is left.
  Algorithm best(const ProductPlan& plan);

 private:
  class Operands;
  struct Entrant {
    Algorithm algorithm;
    std::vector<double> microseconds;
    bool near = true, failed = false;
  };
  /// Per launch, or nothing when the library refuses.
  std::optional<double> time(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm,
                             std::int64_t launches);
  void fill(const Operands& operands, const ProductPlan& plan);
  bool repeats(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm);
  /// With beta = 1 it gives the product and one fp32 addition.
  bool adds_whole(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm);
  bool launch(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm,
              std::int64_t index);
  /// Leaves those that work, measured, the fastest first.
  void race(CublasProblem& problem, const Operands& operands, std::vector<Entrant>& entrants);
  /// `doubled`: of twice the fp32 numbers that are there.
  std::uint64_t hash_of(const void* memory, std::int64_t bytes, bool doubled = false);
  void wait();

  Runtime& runtime_;
  cublasLtHandle_t handle_;
  CublasRules rules_;
  StreamHandle stream_{};
  std::byte* host_ = nullptr;  ///< pinned: random numbers on their way to the GPU, results on their way back
  std::int64_t cache_bytes_ = 0;
};

}  // namespace holdfast::cuda
