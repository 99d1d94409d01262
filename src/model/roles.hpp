#pragma once
// Which stored tensor plays which part in the model.
#include <array>
#include <cstdint>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/config/architecture.hpp"

namespace holdfast::model {

using config::Role;

/// A stored tensor and its shape.
struct Stored {
  int index = -1;  ///< below 0: there is no such tensor
  std::int64_t rows = 0, cols = 0;
};

/// Adapters of a linear layer that consists of up to three (q|k|v).
struct AdapterRoles {
  static constexpr int max_parts = 3;
  struct Part {
    Stored b;
    std::int64_t first_col = 0;  ///< of the layer's output
  };
  Stored a;  ///< all parts' A, one below the other; none: no adapters here
  std::array<Part, max_parts> parts;
  int count = 0;
};

/// The stored tensors of one block by role.
struct Block {
  std::array<Stored, config::roles_of_block> weight;  ///< of linear layers and norms
  std::array<Stored, config::linears_of_block> bias;  ///< as 1 x n
  std::array<AdapterRoles, config::linears_of_block> adapters;
};

/// The model's stored tensors by role.
struct Roles {
  Stored embedding, final_norm, head;
  std::vector<Block> blocks;

  explicit Roles(const config::ModelShape& shape) : blocks(as_size(shape.layers)) {
    int index = 0;
    for (const config::StoredTensor& t : config::stored_tensors_of(shape)) {
      const Stored stored{index++, t.rows, t.cols};
      if (t.unit == 0)
        embedding = stored;
      else if (t.unit <= shape.layers)
        take(blocks[t.unit - 1], t, stored);
      else
        (t.role == Role::head ? head : final_norm) = stored;
    }
    if (shape.tied_embeddings) head = embedding;
    for (Block& block : blocks) number_columns(shape, block);
  }

 private:
  static void take(Block& block, const config::StoredTensor& t, Stored stored) {
    const auto role = as_size(t.role);
    switch (t.kind) {
      case config::TensorKind::bias:
        block.bias.at(role) = {stored.index, 1, stored.rows};
        break;
      case config::TensorKind::adapter_a:
        block.adapters.at(role).a = stored;
        break;
      case config::TensorKind::adapter_b: {
        AdapterRoles& to = block.adapters.at(role);
        to.parts.at(as_size(to.count++)).b = stored;
        break;
      }
      default:
        block.weight.at(role) = stored;
    }
  }

  static void number_columns(const config::ModelShape& shape, Block& block) {
    for (int linear = 0; linear < config::linears_of_block; ++linear) {
      AdapterRoles& to = block.adapters[as_size(linear)];
      std::int64_t col = 0;
      int part = 0;
      for (const auto& [projection, module, rows] : config::parts_of(shape, static_cast<Role>(linear))) {
        if (shape.adapters.has(projection)) to.parts.at(as_size(part++)).first_col = col;
        col += rows;
      }
      expects(part == to.count, "every adapter has its place in a layer's output");
    }
  }
};

}  // namespace holdfast::model
