// Head and cross entropy on the CPU, chunk by chunk of tokens.
#include <array>
#include <cmath>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

/// The cross entropy of a row of logits whose largest is `top`.
double loss_of(float top, float of_label, float sum) {
  const double loss =
      std::log(static_cast<double>(sum)) + (static_cast<double>(top) - static_cast<double>(of_label));
  return loss < 0 ? 0 : loss;  // the sum is rounded: a certain label may come out at -1e-8. NaN stays NaN
}

HOLDFAST_VECTOR_WIDTHS double cross_entropy(const float* logits, std::int64_t n, std::int64_t label) {
  const float top = largest(logits, n);
  return loss_of(top, logits[label], sum_of_exponentials(logits, n, top));
}

/// The same, and the row becomes softmax - onehot(label), as elements of type T from the row's beginning.
template <class T>
HOLDFAST_VECTOR_WIDTHS double cross_entropy_with_gradient(float* logits, std::int64_t n, std::int64_t label) {
  const float top = largest(logits, n), of_label = logits[label];
  const float sum = exponentials(logits, n, top), inverse = 1.0f / sum;
  const T at_label = rounded<T>(logits[label] * inverse - 1.0f);
  T* gradient = reinterpret_cast<T*>(logits);
#pragma GCC ivdep  // what is written lies at or before what was read
  for (std::int64_t v = 0; v < n; ++v) gradient[v] = rounded<T>(logits[v] * inverse);
  gradient[label] = at_label;
  return loss_of(top, of_label, sum);
}

}  // namespace

void CpuKernels::head_loss(Stream& stream, const HeadLoss& h) {
  expects(h.head.cols == h.hidden.cols, "head_loss: the head reads the hidden size");
  expects(h.logits.cols == h.head.rows && h.logits.rows >= std::min(h.hidden.rows, head_chunk),
          "head_loss: room for a chunk of logits");
  const DType type = h.hidden.type;
  for (std::int64_t first = 0; first < h.hidden.rows; first += head_chunk) {
    const std::int64_t tokens = std::min(head_chunk, h.hidden.rows - first);
    const ConstMat hidden = h.hidden.rows_at(first, tokens);
    const Mat logits = h.logits.rows_at(0, tokens);
    // The gradient of a row takes the place of its logits, as the narrower elements that products read.
    const ConstMat d_logits = {logits.data, type, tokens, logits.cols,
                               logits.stride * bytes_of(DType::fp32) / bytes_of(type)};
    const std::int32_t* labels = h.labels + first;
    matmul(stream, logits, hidden, false, h.head, true, Write::replace);

    std::array<double, head_chunk> losses{};
    with_type(type, [&]<class T>() {
      run_parts(tokens, 4 * logits.cols, [&](std::int64_t low, std::int64_t end) {
        for (std::int64_t t = low; t < end; ++t) {
          float* row = logits.row<float>(t);
          double& loss = losses[t];
          if (labels[t] < 0)
            std::memset(row, 0, as_size(logits.cols) * sizeof(T));
          else if (h.d_hidden)
            loss = cross_entropy_with_gradient<T>(row, logits.cols, labels[t]);
          else
            loss = cross_entropy(row, logits.cols, labels[t]);
        }
      });
    });
    for (std::int64_t at = 0; at < tokens;) {
      const auto part = h.part_at(first + at, first + tokens);
      for (const std::int64_t end = at + part.tokens; at < end; ++at) {
        if (labels[at] < 0) continue;
        h.loss[part.sum].add(losses[as_size(at)]);
        ++h.valid[part.sum];
      }
    }
    if (!h.d_hidden) continue;
    matmul(stream, h.d_hidden.rows_at(first, tokens), d_logits, false, h.head, false, Write::replace);
    if (h.d_head)
      matmul(stream, h.d_head, d_logits, true, hidden, false, first == 0 ? Write::replace : Write::add);
  }
}

}  // namespace holdfast::kernels
