#include "tests/support/reference_tape.hpp"

#include <cmath>
#include <stdexcept>

namespace holdfast::reference {

namespace {

using i64 = std::int64_t;

void need(bool condition) {
  if (!condition) throw std::logic_error("reference: shapes do not fit");
}

/// c += a b
void accumulate(Array& c, const Array& a, const Array& b) {
  for (i64 i = 0; i < a.rows; ++i)
    for (i64 k = 0; k < a.cols; ++k) {
      const double x = a.at(i, k);
      const double* from = &b.v[k * b.cols];
      double* to = &c.v[i * c.cols];
      for (i64 j = 0; j < b.cols; ++j) to[j] += x * from[j];
    }
}

Array transposed(const Array& a) {
  Array t(a.cols, a.rows);
  for (i64 i = 0; i < a.rows; ++i)
    for (i64 j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  return t;
}

}  // namespace

Tape::Var Tape::push(Array value) {
  Array zero(value.rows, value.cols);
  nodes_.push_back({std::move(value), std::move(zero), {}});
  return static_cast<Var>(nodes_.size()) - 1;
}

Tape::Var Tape::input(Array value) { return push(std::move(value)); }

Tape::Var Tape::matmul(Var a, Var b) {
  need(v(a).cols == v(b).rows);
  Array c(v(a).rows, v(b).cols);
  accumulate(c, v(a), v(b));
  const Var out = push(std::move(c));
  on_pull(out, [this, a, b, out] {
    accumulate(g(a), g(out), transposed(v(b)));
    accumulate(g(b), transposed(v(a)), g(out));
  });
  return out;
}

Tape::Var Tape::matmul_transposed(Var a, Var b) {
  need(v(a).cols == v(b).cols);
  Array c(v(a).rows, v(b).rows);
  accumulate(c, v(a), transposed(v(b)));
  const Var out = push(std::move(c));
  on_pull(out, [this, a, b, out] {
    accumulate(g(a), g(out), v(b));
    accumulate(g(b), transposed(g(out)), v(a));
  });
  return out;
}

Tape::Var Tape::add(Var a, Var b) {
  need(v(a).rows == v(b).rows && v(a).cols == v(b).cols);
  Array c = v(a);
  for (std::size_t i = 0; i < c.v.size(); ++i) c.v[i] += v(b).v[i];
  const Var out = push(std::move(c));
  on_pull(out, [this, a, b, out] {
    for (std::size_t i = 0; i < g(out).v.size(); ++i) {
      g(a).v[i] += g(out).v[i];
      g(b).v[i] += g(out).v[i];
    }
  });
  return out;
}

Tape::Var Tape::multiply(Var a, Var b) {
  const i64 rows = v(b).rows, cols = v(b).cols;
  need((rows == v(a).rows || rows == 1) && (cols == v(a).cols || cols == 1));
  auto r = [rows](i64 i) { return rows == 1 ? 0 : i; };
  auto c = [cols](i64 j) { return cols == 1 ? 0 : j; };
  Array product = v(a);
  for (i64 i = 0; i < product.rows; ++i)
    for (i64 j = 0; j < product.cols; ++j) product.at(i, j) *= v(b).at(r(i), c(j));
  const Var out = push(std::move(product));
  on_pull(out, [this, a, b, out, r, c] {
    for (i64 i = 0; i < g(out).rows; ++i)
      for (i64 j = 0; j < g(out).cols; ++j) {
        g(a).at(i, j) += g(out).at(i, j) * v(b).at(r(i), c(j));
        g(b).at(r(i), c(j)) += g(out).at(i, j) * v(a).at(i, j);
      }
  });
  return out;
}

Tape::Var Tape::map(Var a, const std::function<double(double)>& f,
                    const std::function<double(double)>& derivative) {
  Array c = v(a);
  for (double& x : c.v) x = f(x);
  const Var out = push(std::move(c));
  on_pull(out, [this, a, out, derivative] {
    for (std::size_t i = 0; i < g(out).v.size(); ++i) g(a).v[i] += g(out).v[i] * derivative(v(a).v[i]);
  });
  return out;
}

Tape::Var Tape::row_sums(Var a) {
  Array c(v(a).rows, 1);
  for (i64 i = 0; i < v(a).rows; ++i)
    for (i64 j = 0; j < v(a).cols; ++j) c.at(i, 0) += v(a).at(i, j);
  const Var out = push(std::move(c));
  on_pull(out, [this, a, out] {
    for (i64 i = 0; i < v(a).rows; ++i)
      for (i64 j = 0; j < v(a).cols; ++j) g(a).at(i, j) += g(out).at(i, 0);
  });
  return out;
}

Tape::Var Tape::columns(Var a, i64 first, i64 count) {
  need(first + count <= v(a).cols);
  Array c(v(a).rows, count);
  for (i64 i = 0; i < c.rows; ++i)
    for (i64 j = 0; j < count; ++j) c.at(i, j) = v(a).at(i, first + j);
  const Var out = push(std::move(c));
  on_pull(out, [this, a, out, first] {
    for (i64 i = 0; i < g(out).rows; ++i)
      for (i64 j = 0; j < g(out).cols; ++j) g(a).at(i, first + j) += g(out).at(i, j);
  });
  return out;
}

Tape::Var Tape::rows(Var a, i64 first, i64 count) {
  std::vector<std::int32_t> index;
  for (i64 i = 0; i < count; ++i) index.push_back(static_cast<std::int32_t>(first + i));
  return gather(a, index);
}

Tape::Var Tape::join_columns(const std::vector<Var>& parts) {
  i64 cols = 0;
  for (const Var p : parts) cols += v(p).cols;
  Array c(v(parts.at(0)).rows, cols);
  i64 at = 0;
  for (const Var p : parts) {
    for (i64 i = 0; i < c.rows; ++i)
      for (i64 j = 0; j < v(p).cols; ++j) c.at(i, at + j) = v(p).at(i, j);
    at += v(p).cols;
  }
  const Var out = push(std::move(c));
  on_pull(out, [this, parts, out] {
    i64 from = 0;
    for (const Var p : parts) {
      for (i64 i = 0; i < g(p).rows; ++i)
        for (i64 j = 0; j < g(p).cols; ++j) g(p).at(i, j) += g(out).at(i, from + j);
      from += g(p).cols;
    }
  });
  return out;
}

Tape::Var Tape::join_rows(const std::vector<Var>& parts) {
  Array c(0, v(parts.at(0)).cols);
  for (const Var p : parts) {
    need(v(p).cols == c.cols);
    c.v.insert(c.v.end(), v(p).v.begin(), v(p).v.end());
    c.rows += v(p).rows;
  }
  const Var out = push(std::move(c));
  on_pull(out, [this, parts, out] {
    std::size_t at = 0;
    for (const Var p : parts)
      for (double& x : g(p).v) x += g(out).v[at++];
  });
  return out;
}

Tape::Var Tape::gather(Var table, const std::vector<std::int32_t>& index) {
  Array c(static_cast<i64>(index.size()), v(table).cols);
  for (i64 i = 0; i < c.rows; ++i)
    for (i64 j = 0; j < c.cols; ++j)
      if (const auto row = index[i]; row >= 0) c.at(i, j) = v(table).at(row, j);
  const Var out = push(std::move(c));
  on_pull(out, [this, table, out, index] {
    for (i64 i = 0; i < g(out).rows; ++i)
      for (i64 j = 0; j < g(out).cols; ++j)
        if (const auto row = index[i]; row >= 0) g(table).at(row, j) += g(out).at(i, j);
  });
  return out;
}

Tape::Var Tape::softmax(Var a, const std::function<bool(i64, i64)>& allowed) {
  Array p(v(a).rows, v(a).cols);
  for (i64 i = 0; i < p.rows; ++i) {
    double top = -INFINITY, sum = 0;
    for (i64 j = 0; j < p.cols; ++j)
      if (allowed(i, j)) top = std::fmax(top, v(a).at(i, j));
    for (i64 j = 0; j < p.cols; ++j)
      if (allowed(i, j)) sum += p.at(i, j) = std::exp(v(a).at(i, j) - top);
    for (i64 j = 0; j < p.cols; ++j) p.at(i, j) /= sum;
  }
  const Var out = push(std::move(p));
  on_pull(out, [this, a, out] {
    for (i64 i = 0; i < v(out).rows; ++i) {
      double mean = 0;
      for (i64 j = 0; j < v(out).cols; ++j) mean += g(out).at(i, j) * v(out).at(i, j);
      for (i64 j = 0; j < v(out).cols; ++j) g(a).at(i, j) += v(out).at(i, j) * (g(out).at(i, j) - mean);
    }
  });
  return out;
}

Tape::Var Tape::cross_entropy(Var logits, const std::vector<std::int32_t>& labels) {
  Array p(v(logits).rows, v(logits).cols), loss(1, 1);
  for (i64 i = 0; i < p.rows; ++i) {
    const auto label = labels[i];
    if (label < 0) continue;
    double top = -INFINITY, sum = 0;
    for (i64 j = 0; j < p.cols; ++j) top = std::fmax(top, v(logits).at(i, j));
    for (i64 j = 0; j < p.cols; ++j) sum += std::exp(v(logits).at(i, j) - top);
    for (i64 j = 0; j < p.cols; ++j)
      p.at(i, j) = std::exp(v(logits).at(i, j) - top) / sum - (j == label ? 1 : 0);
    loss.v[0] += std::log(sum) + top - v(logits).at(i, label);
  }
  const Var out = push(std::move(loss));
  on_pull(out, [this, logits, out, p] {
    for (std::size_t i = 0; i < p.v.size(); ++i) g(logits).v[i] += g(out).v[0] * p.v[i];
  });
  return out;
}

void Tape::backward(Var out, const Array& seed) {
  g(out) = seed;
  for (Var x = out; x >= 0; --x)
    if (nodes_[x].pull) nodes_[x].pull();
}

}  // namespace holdfast::reference
