#pragma once
// Where the operations of a block (config::block_ops) find what they read and write: a trainer's activations,
// or a decoder's.
#include <cstddef>

#include "src/config/architecture.hpp"
#include "src/tensor/mat.hpp"

namespace holdfast::model {

using config::Activation;

class Matrices {
 public:
  virtual tensor::Mat at(Activation what) = 0;
  virtual std::byte* workspace() = 0;  ///< scratch of attention
  float* floats(Activation what) { return at(what).row<float>(0); }

 protected:
  ~Matrices() = default;
};

}  // namespace holdfast::model
