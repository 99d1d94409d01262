#pragma once
// Gemm with cuBLASLt; made through make_cublas_gemm().
//
// Everything that a product needs is made when its plan is seen first: descriptors and an algorithm, from the
// choices if they have the plan's key, else the library's favourite that keeps the rules (see
// CublasProblem::candidates()). From then on a call sets pointers and enqueues. Streams do not share scratch,
// so products on different streams may overlap; calls come from one thread.
#include <map>
#include <optional>
#include <vector>

#include "src/cuda/gemm/cublas_problem.hpp"

namespace holdfast::cuda {

class CublasGemm final : public Gemm {
 public:
  CublasGemm(Runtime& runtime, bool deterministic);
  ~CublasGemm() override;
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;

  void run(StreamHandle stream, const Product& product) override;
  std::string identity() const override;
  void note(const Product& product) override;
  std::string choices(std::string_view known) override;
  void use_choices(std::string_view text) override;

 private:
  struct Prepared {
    CublasProblem problem;
    Algorithm algorithm;
  };
  struct Scratch {
    std::optional<StreamHandle> owner;  ///< none yet: the first stream that comes
    void* memory = nullptr;
  };

  Prepared& prepare(const ProductPlan& plan, const ProductPointers& pointers);
  Algorithm algorithm_for(CublasProblem& problem) const;
  void* scratch_of(StreamHandle stream);
  /// Where choices are made and hold.
  Choices here() const;

  Runtime& runtime_;
  CublasRules rules_;
  CublasHandle handle_;
  std::map<ProductPlan, Prepared> prepared_;
  std::map<std::string, ProductPlan> noted_;
  std::optional<Choices> choices_;
  std::vector<Scratch> scratch_;
};

/// Bytes of scratch per stream that multiplies: 64 MiB on Hopper, else 32 MiB, as NVIDIA recommends. Part of
/// the device memory that a plan must leave.
std::int64_t gemm_scratch_bytes(const GpuTraits& gpu);

}  // namespace holdfast::cuda
