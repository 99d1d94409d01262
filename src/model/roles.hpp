#pragma once
// Which stored tensor plays which part in the model.
#include <cstdint>
#include <vector>

#include "src/base/error.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::model {

/// A stored tensor and its shape.
struct Stored {
  int index = -1;  ///< below 0: there is no such tensor
  std::int64_t rows = 0, cols = 0;
};

/// A vector, whichever way it is stored, as 1 x n.
inline Stored as_row(Stored t) { return {t.index, 1, t.rows * t.cols}; }

/// The stored tensors of one block.
struct Block {
  Stored attention_norm, qkv;
  Stored qkv_bias;  ///< 1 x n; not stored in models without
  Stored o, mlp_norm, gate_up, down;
};

/// The model's stored tensors by role, in the order of config::stored_tensors_of().
struct Roles {
  Stored embedding, final_norm, head;
  std::vector<Block> blocks;

  explicit Roles(const config::ModelShape& shape) {
    const auto stored = config::stored_tensors_of(shape);
    int at = 0;
    auto next = [&] {
      const auto& t = stored.at(static_cast<std::size_t>(at));
      return Stored{at++, t.rows, t.cols};
    };
    embedding = next();
    for (int layer = 0; layer < shape.layers; ++layer) {
      Block b;
      b.attention_norm = next(), b.qkv = next();
      if (shape.qkv_bias) b.qkv_bias = as_row(next());
      for (Stored* role : {&b.o, &b.mlp_norm, &b.gate_up, &b.down}) *role = next();
      blocks.push_back(b);
    }
    final_norm = next();
    head = shape.tied_embeddings ? embedding : next();
    expects(at == static_cast<int>(stored.size()), "every stored tensor has a role in the model");
  }
};

}  // namespace holdfast::model
