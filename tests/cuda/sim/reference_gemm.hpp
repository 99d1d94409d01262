#pragma once
// Products of matrices on the simulator: the CPU's, as operations of a simulated stream. Choices are made,
// kept and refused as with cuBLASLt, and they change bits, so that a run that loses its choices is found out.
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "src/cuda/gemm/choices.hpp"
#include "src/cuda/gemm/gemm.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::sim {

class ReferenceGemm final : public Gemm {
 public:
  /// The sum over k in one piece; or, chosen for fp32 results only, in two halves.
  enum Algorithms { whole = 1, halves = 2 };

  /// `luck` stands for the noise of timing: which algorithm a search finds for a product. 0: always `whole`.
  explicit ReferenceGemm(SimRuntime& runtime, bool deterministic = true, std::uint64_t luck = 0);

  void run(StreamHandle stream, const Product& product) override;
  std::string identity() const override;
  void note(const Product& product) override;
  std::string choices(std::string_view known) override;
  void use_choices(std::string_view text) override;

  /// Products whose algorithm was searched for so far.
  int searches() const { return searches_; }

 private:
  Choices here() const;

  SimRuntime& runtime_;
  bool deterministic_;
  std::uint64_t luck_;
  std::shared_ptr<kernels::Kernels> kernels_;  ///< shared with operations that have not run yet
  std::set<std::string> noted_;
  std::optional<Choices> choices_;
  int searches_ = 0;
};

}  // namespace holdfast::cuda::sim
