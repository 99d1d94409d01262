#pragma once
// The memory of a micro-batch: the matrices of config::activation_rows() in an arena, and what they are
// called there. What a block does not keep is shared by all blocks.
#include <array>
#include <cstdint>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/config/architecture.hpp"
#include "src/model/matrices.hpp"
#include "src/model/options.hpp"
#include "src/tensor/arena.hpp"
#include "src/tensor/exact_sum.hpp"

namespace holdfast::model {

class Activations {
 public:
  /// Plans everything in `arena`. `attention_workspace`: bytes, see kernels::Kernels::workspace().
  Activations(const config::ModelShape& shape, const Options& options, std::int64_t attention_workspace,
              tensor::Arena& arena);

  /// Once the arena is committed. `layer`: of a matrix of a block, else 0.
  tensor::Mat mat(Activation what, int layer = 0);
  float* floats(Activation what, int layer = 0) { return mat(what, layer).row<float>(0); }
  std::int32_t* words(Activation what) { return reinterpret_cast<std::int32_t*>(mat(what).data); }
  /// Where `branch` is: the gradient of attention's output.
  tensor::Mat d_attended();
  /// Blocks do not keep it: it is computed again before the backward pass needs it.
  bool shared(Activation what) const { return !place(what).every_block; }

  std::byte* workspace() { return arena_.at(workspace_); }
  std::int64_t* first_sample() { return arena_.at(first_sample_); }
  tensor::ExactSum* loss() { return arena_.at(loss_); }
  std::int64_t* valid() { return arena_.at(valid_); }

 private:
  struct Place {
    std::vector<tensor::Arena::Piece<std::byte>> pieces;  ///< one, or one for each block
    tensor::DType type = tensor::DType::fp32;
    std::int64_t rows = 0, cols = 0;
    bool every_block = false;
  };
  const Place& place(Activation what) const { return places_[as_size(what)]; }

  tensor::Arena& arena_;
  std::array<Place, config::activations> places_;
  std::int64_t width_, attended_width_;
  tensor::Arena::Piece<std::byte> workspace_;
  tensor::Arena::Piece<tensor::ExactSum> loss_;
  tensor::Arena::Piece<std::int64_t> valid_, first_sample_;
};

/// Those that one block sees.
class BlockActivations final : public Matrices {
 public:
  BlockActivations(Activations& all, int layer) : all_(all), layer_(layer) {}
  tensor::Mat at(Activation what) override { return all_.mat(what, layer_); }
  std::byte* workspace() override { return all_.workspace(); }
  Activations& all() { return all_; }

 private:
  Activations& all_;
  int layer_;
};

}  // namespace holdfast::model
