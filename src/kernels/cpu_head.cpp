// Head and cross entropy on the CPU, chunk by chunk of tokens.
#include <array>
#include <cmath>

#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

/// Cross entropy of one row of logits; with `gradient` the row becomes softmax - onehot(label).
HOLDFAST_VECTOR_WIDTHS double cross_entropy(float* logits, std::int64_t n, std::int64_t label,
                                            bool gradient) {
  const float top = largest(logits, n), of_label = logits[label];
  const float sum = exponentials(logits, n, top);
  if (gradient) {
    const float inverse = 1.0f / sum;
    for (std::int64_t v = 0; v < n; ++v) logits[v] *= inverse;
    logits[label] -= 1.0f;
  }
  const double loss =
      std::log(static_cast<double>(sum)) + (static_cast<double>(top) - static_cast<double>(of_label));
  return loss < 0 ? 0 : loss;  // the sum is rounded: a certain label may come out at -1e-8. NaN stays NaN
}

}  // namespace

void CpuKernels::head_loss(Stream& stream, const HeadLoss& h) {
  expects(h.head.cols == h.hidden.cols, "head_loss: the head reads the hidden size");
  expects(h.logits.cols == h.head.rows && h.logits.rows >= std::min(h.hidden.rows, head_chunk),
          "head_loss: room for a chunk of logits");
  const bool gradient = static_cast<bool>(h.d_hidden);
  for (std::int64_t first = 0; first < h.hidden.rows; first += head_chunk) {
    const std::int64_t tokens = std::min(head_chunk, h.hidden.rows - first);
    const ConstMat hidden = h.hidden.rows_at(first, tokens);
    const Mat logits = h.logits.rows_at(0, tokens);
    const std::int32_t* labels = h.labels + first;
    matmul(stream, logits, hidden, false, h.head, true, Write::replace);

    std::array<double, head_chunk> losses{};
    run_parts(tokens, 4 * logits.cols, [&](std::int64_t low, std::int64_t end) {
      for (std::int64_t t = low; t < end; ++t) {
        if (labels[t] >= 0)
          losses[static_cast<std::size_t>(t)] =
              cross_entropy(logits.row(t), logits.cols, labels[t], gradient);
        else
          std::fill(logits.row(t), logits.row(t) + logits.cols, 0.0f);
      }
    });
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (labels[t] < 0) continue;
      h.loss->add(losses[static_cast<std::size_t>(t)]);
      ++*h.valid;
    }
    if (!gradient) continue;
    matmul(stream, h.d_hidden.rows_at(first, tokens), logits, false, h.head, false, Write::replace);
    matmul(stream, h.d_head, logits, true, hidden, false, first == 0 ? Write::replace : Write::add);
  }
}

}  // namespace holdfast::kernels
