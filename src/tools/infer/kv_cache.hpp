#pragma once
// The keys and values of one sequence: what a token needs of those before it. It grows with the text.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/tensor/mat.hpp"

namespace holdfast::infer {

class KvCache {
 public:
  /// `width`: of all keys, or of all values, of a token in one layer.
  KvCache(int layers, std::int64_t width, tensor::DType type)
      : rows_(as_size(layers)), width_(width), type_(type) {}

  std::int64_t length() const { return length_; }  ///< tokens that every layer has

  /// Puts rows of keys and values, [k | v] x 2 width, behind the first `length()` tokens of a layer.
  void append(int layer, tensor::ConstMat key_values) {
    expects(key_values.cols == 2 * width_ && key_values.type == type_, "the layer's keys and values");
    auto& to = rows_[layer];
    const std::int64_t bytes = row_bytes();
    const auto needed = as_size((length_ + key_values.rows) * bytes);
    if (to.size() < needed) to.resize(std::max(needed, to.size() * 2));
    for (std::int64_t r = 0; r < key_values.rows; ++r)
      std::memcpy(to.data() + (length_ + r) * bytes, key_values.rows_at(r, 1).data, bytes);
  }
  /// All layers have `count` tokens more.
  void advance(std::int64_t count) { length_ += count; }

  /// The first `count` tokens of a layer, appended ones included: count x 2 width.
  tensor::ConstMat rows(int layer, std::int64_t count) const {
    return tensor::dense(static_cast<const void*>(rows_[layer].data()), type_, count, 2 * width_);
  }

 private:
  std::int64_t row_bytes() const { return 2 * width_ * tensor::bytes_of(type_); }

  std::vector<std::vector<std::byte>> rows_;  ///< by layer
  std::int64_t width_, length_ = 0;
  tensor::DType type_;
};

}  // namespace holdfast::infer
