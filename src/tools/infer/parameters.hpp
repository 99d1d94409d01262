#pragma once
// A whole model in the memory of one process, for what computes forward only.
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/config/model_shape.hpp"
#include "src/model/weights.hpp"
#include "src/tensor/arena.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::infer {

class Parameters final : public model::Weights {
 public:
  /// Fills pieces of fp32 tensors "model/NAME"; called by several threads at once.
  using Read = std::function<void(const checkpoint::State&)>;

  /// Room for the stored tensors of `shape`, adapters included, as fp32 or bf16. Throws Error (runtime) where
  /// there is not enough memory.
  Parameters(const config::ModelShape& shape, tensor::DType type);

  /// Fills `specs`, of config::tensors_of(), frozen_tensors_of() or base_tensors_of(); every element is asked
  /// for once. bf16: rounded to nearest even, as a run that computes in bf16 does. Throws what `read` throws.
  void fill(const std::vector<config::TensorSpec>& specs, const Read& read);

  tensor::DType type() const { return type_; }
  const config::ModelShape& shape() const { return shape_; }

  void acquire(int) override {}
  const void* weight(int stored) override;
  void release(int) override {}
  float* gradient(int) override { return nullptr; }
  void reduce(int) override {}

 private:
  /// Where a logical tensor lies, and its first element there.
  struct Place {
    int stored = 0;
    std::int64_t first = 0;
  };
  std::byte* address(const Place& place, std::int64_t element);
  Place place_of(const std::string& name) const;
  void fill(checkpoint::State& part, std::vector<float>& room, const Read& read);

  config::ModelShape shape_;
  tensor::DType type_;
  tensor::Arena arena_{"the model's weights"};
  std::vector<tensor::Arena::Piece<std::byte>> pieces_;  ///< by stored tensor
  std::vector<std::pair<std::string, Place>> places_;    ///< sorted by name
};

}  // namespace holdfast::infer
