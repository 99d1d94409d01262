#pragma once
// A small reverse-mode autodiff in fp64: the reference that the product's kernels and its hand-written
// backward pass are compared with. Plain loops, primitive operations, nothing shared with the product.
#include <cstdint>
#include <functional>
#include <vector>

#include "src/base/as_size.hpp"

namespace holdfast::reference {

/// rows x cols, row-major.
struct Array {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> v;

  Array() = default;
  Array(std::int64_t r, std::int64_t c) : rows(r), cols(c), v(as_size(r * c)) {}
  double& at(std::int64_t r, std::int64_t c) { return v[r * cols + c]; }
  double at(std::int64_t r, std::int64_t c) const { return v[r * cols + c]; }
};

class Tape {
 public:
  using Var = int;  ///< an array on this tape

  Var input(Array value);
  const Array& value(Var x) const { return nodes_[x].value; }
  /// After backward(): the gradient of the seeded sum.
  const Array& gradient(Var x) const { return nodes_[x].gradient; }

  Var matmul(Var a, Var b);
  Var matmul_transposed(Var a, Var b);  ///< a b^T
  Var add(Var a, Var b);
  /// Elementwise; b may be one row or one column that is repeated.
  Var multiply(Var a, Var b);
  Var map(Var a, const std::function<double(double)>& f, const std::function<double(double)>& derivative);
  Var row_sums(Var a);
  Var columns(Var a, std::int64_t first, std::int64_t count);
  Var rows(Var a, std::int64_t first, std::int64_t count);
  Var join_columns(const std::vector<Var>& parts);
  Var join_rows(const std::vector<Var>& parts);
  /// Row i is table row index[i]; zeros where the index is negative.
  Var gather(Var table, const std::vector<std::int32_t>& index);
  /// Softmax of each row over the columns with allowed(row, column), zero elsewhere.
  Var softmax(Var a, const std::function<bool(std::int64_t, std::int64_t)>& allowed);
  /// 1 x 1: the sum over rows with label >= 0 of -log softmax(row)[label].
  Var cross_entropy(Var logits, const std::vector<std::int32_t>& labels);

  /// Gradients of sum(seed * out) with respect to everything.
  void backward(Var out, const Array& seed);

 private:
  struct Node {
    Array value, gradient;
    std::function<void()> pull;  ///< adds this node's gradient to those of its operands
  };
  Var push(Array value);
  Array& v(Var x) { return nodes_[x].value; }
  Array& g(Var x) { return nodes_[x].gradient; }
  void on_pull(Var x, std::function<void()> pull) { nodes_[x].pull = std::move(pull); }

  std::vector<Node> nodes_;
};

}  // namespace holdfast::reference
