#pragma once
// Which stored tensor plays which part in the model.
#include <cstdint>
#include <vector>

#include "src/base/error.hpp"
#include "src/config/model_shape.hpp"

namespace holdfast::model {

/// A stored tensor and its shape.
struct Stored {
  int index = -1;
  std::int64_t rows = 0, cols = 0;
};

/// The stored tensors of one block.
struct Block {
  Stored attention_norm, qkv, o, mlp_norm, gate_up, down;
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
      for (Stored* role : {&b.attention_norm, &b.qkv, &b.o, &b.mlp_norm, &b.gate_up, &b.down}) *role = next();
      blocks.push_back(b);
    }
    final_norm = next();
    head = shape.tied_embeddings ? embedding : next();
    expects(at == static_cast<int>(stored.size()), "every stored tensor has a role in the model");
  }
};

}  // namespace holdfast::model
