#pragma once
// Which stored tensor plays which part in the model.
#include <array>
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

/// The stored tensors of one block.
struct Block {
  Stored attention_norm, qkv;
  Stored qkv_bias;  ///< 1 x n; not stored in models without
  Stored o, mlp_norm, gate_up, down;
  AdapterRoles qkv_adapters, o_adapters, gate_up_adapters, down_adapters;
};

/// The model's stored tensors by role, in the order of config::stored_tensors_of().
struct Roles {
  Stored embedding, final_norm, head;
  std::vector<Block> blocks;

  explicit Roles(const config::ModelShape& shape) {
    const auto stored = config::stored_tensors_of(shape);
    int at = 0;
    auto next = [&] {
      const auto& t = stored.at(at);
      return Stored{at++, t.rows, t.cols};
    };
    embedding = next();
    for (int layer = 0; layer < shape.layers; ++layer) {
      Block b;
      b.attention_norm = next();
      b.qkv = next();
      if (shape.qkv_bias) b.qkv_bias = as_row(next());
      for (Stored* role : {&b.o, &b.mlp_norm, &b.gate_up, &b.down}) *role = next();
      using enum config::Projection;
      const auto adapters = [&](AdapterRoles& to, std::initializer_list<config::Projection> layers) {
        const std::int64_t d = shape.width, kv = std::int64_t{shape.kv_heads} * shape.head_size(),
                           f = shape.ffn;
        std::int64_t col = 0;
        for (const auto p : layers) {
          if (shape.adapters.has(p)) to.parts[to.count++].first_col = col;
          col += p == k || p == v ? kv : p == gate || p == up ? f : d;
        }
        if (to.count == 0) return;
        to.a = next();
        for (int i = 0; i < to.count; ++i) to.parts[i].b = next();
      };
      adapters(b.qkv_adapters, {q, k, v}), adapters(b.o_adapters, {o});
      adapters(b.gate_up_adapters, {gate, up}), adapters(b.down_adapters, {down});
      blocks.push_back(b);
    }
    final_norm = next();
    head = shape.tied_embeddings ? embedding : next();
    expects(at == static_cast<int>(stored.size()), "every stored tensor has a role in the model");
  }
};

}  // namespace holdfast::model
