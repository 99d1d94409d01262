#include "src/model/adapter_layers.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/digest.hpp"

namespace holdfast::model {

using kernels::Dropout;
using kernels::Write;
using tensor::DType;

namespace {

/// The first `rows` x `cols` of a room, without gaps.
Mat room(Activations& a, Activation what, std::int64_t rows, std::int64_t cols) {
  const Mat whole = a.mat(what);
  return tensor::dense(whole.data, whole.type, rows, cols);
}

}  // namespace

AdapterLayers::AdapterLayers(kernels::Kernels& kernels, tensor::Stream& stream, Activations& activations,
                             const config::Adapters& adapters, const Options& options)
    : kernels_(kernels), stream_(stream), a_(activations), adapters_(adapters), options_(options) {}

void AdapterLayers::scale(Mat out, ConstMat in) const {
  Dropout d;
  d.out = out;
  d.in = in;
  d.factor = static_cast<float>(adapters_.scale);
  kernels_.dropout(stream_, d);
}

Dropout AdapterLayers::drop(int linear, Mat out, ConstMat in) const {
  Dropout d;
  d.out = out;
  d.in = in;
  d.factor = static_cast<float>(1 / (1 - adapters_.dropout));
  d.threshold = static_cast<std::uint32_t>(std::ldexp(adapters_.dropout, 32));
  d.key = mix64(options_.seed ^ mix64(static_cast<std::uint64_t>(linear) + 1));
  d.first_sample = a_.first_sample();
  d.sequence = options_.sequence;
  return d;
}

ConstMat AdapterLayers::input(int linear, ConstMat x) const {
  if (!drops()) return x;
  const Mat dropped = room(a_, Activation::adapter_dropped, x.rows, x.cols);
  kernels_.dropout(stream_, drop(linear, dropped, x));
  return dropped;
}

template <class Make>
void AdapterLayers::in_chunks(Mat y, bool directly, const Make& make) const {
  if (directly) return make(y, 0, y.rows);
  for (std::int64_t first = 0; first < y.rows; first += kernels::head_chunk) {
    const std::int64_t tokens = std::min(kernels::head_chunk, y.rows - first);
    const Mat sum = room(a_, Activation::adapter_wide, tokens, y.cols);
    make(sum, first, tokens);
    kernels_.convert(stream_, y.rows_at(first, tokens).data, y.type, sum.data, sum.type, tokens * y.cols);
  }
}

void AdapterLayers::forward(int linear, Mat y, ConstMat x, ConstMat weight, ConstMat bias,
                            const Adapter& adapter) const {
  const std::int64_t ranks = adapter.a.rows;
  const Mat inner = room(a_, Activation::adapter_inner, x.rows, ranks),
            scaled = room(a_, Activation::adapter_scaled, x.rows, ranks);
  kernels_.matmul(stream_, inner, input(linear, x), false, adapter.a, true, Write::replace);
  scale(scaled, inner);
  in_chunks(y, y.type == DType::fp32, [&](Mat sum, std::int64_t first, std::int64_t tokens) {
    kernels_.matmul(stream_, sum, x.rows_at(first, tokens), false, weight, true, Write::replace, bias);
    for (int i = 0; i < adapter.count; ++i) {
      const auto& p = adapter.parts[i];
      kernels_.matmul(stream_, sum.cols_at(p.first_col, p.b.rows),
                      ConstMat(part(scaled, i)).rows_at(first, tokens), false, p.b, true, Write::add);
    }
  });
}

void AdapterLayers::backward(int linear, Mat d_x, ConstMat d_y, ConstMat x, ConstMat weight,
                             const Adapter& adapter) const {
  const std::int64_t ranks = adapter.a.rows;
  const Mat inner = room(a_, Activation::adapter_inner, x.rows, ranks),
            scaled = room(a_, Activation::adapter_scaled, x.rows, ranks),
            d_scaled = room(a_, Activation::adapter_kept, x.rows, ranks);
  const ConstMat in = input(linear, x);
  kernels_.matmul(stream_, inner, in, false, adapter.a, true, Write::replace);
  scale(scaled, inner);
  for (int i = 0; i < adapter.count; ++i) {
    const auto& p = adapter.parts[i];
    const ConstMat d_part = d_y.cols_at(p.first_col, p.b.rows);
    if (p.d_b) kernels_.matmul(stream_, p.d_b, d_part, true, part(scaled, i), false, Write::replace);
    kernels_.matmul(stream_, part(inner, i), d_part, false, p.b, false, Write::replace);
  }
  scale(d_scaled, inner);
  if (adapter.d_a) kernels_.matmul(stream_, adapter.d_a, d_scaled, true, in, false, Write::replace);
  // x is read no more: its gradient may take its place.
  in_chunks(d_x, d_x.type == DType::fp32 && !drops(), [&](Mat sum, std::int64_t first, std::int64_t tokens) {
    const ConstMat d_rows = ConstMat(d_scaled).rows_at(first, tokens);
    kernels_.matmul(stream_, sum, d_y.rows_at(first, tokens), false, weight, false, Write::replace);
    if (!drops()) return kernels_.matmul(stream_, sum, d_rows, false, adapter.a, false, Write::add);
    const Mat through = room(a_, Activation::adapter_through, tokens, sum.cols);
    kernels_.matmul(stream_, through, d_rows, false, adapter.a, false, Write::replace);
    Dropout d = drop(linear, sum, through);
    d.first_token = first;
    d.write = Write::add;
    kernels_.dropout(stream_, d);
  });
}

}  // namespace holdfast::model
