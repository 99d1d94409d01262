#pragma once
// Runs attention on the GPU of test_gpu.hpp and compares it with fp64.
#include <fmt/core.h>

#include <optional>
#include <string>

#include "src/base/as_size.hpp"
#include "src/cuda/attention/attention.hpp"
#include "tests/cuda/test_gpu.hpp"
#include "tests/kernels/attention_fixture.hpp"

namespace holdfast::cuda::test {

using testing::Array;
using testing::Floats;
using testing::Shape;

struct AttentionCase {
  Shape shape;
  std::int64_t document = 0;  ///< length of documents; 0: one per row
  int gap = 0;                ///< elements between the rows of matrices, a multiple of 8
  std::string name() const {
    return fmt::format("{} rows of {}, heads {}/{} of {}, documents of {}, gap {}", shape.rows,
                       shape.sequence, shape.heads, shape.kv_heads, shape.head_size, document, gap);
  }
};

/// A bf16 matrix on the GPU with gaps between its rows.
class DeviceMatrix {
 public:
  DeviceMatrix(std::int64_t rows, std::int64_t cols, int gap)
      : rows_(rows), cols_(cols), stride_(cols + gap), memory_(as_size(rows * stride_)) {}
  DeviceMatrix(const Array& values, int gap) : DeviceMatrix(values.rows, values.cols, gap) {
    std::vector<tensor::Bf16> x(memory_.size(), tensor::to_bf16(NAN));
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c)
        x[r * stride_ + c] = tensor::to_bf16(static_cast<float>(values.at(r, c)));
    memory_.upload(x);
  }
  tensor::Mat view() const {
    return {reinterpret_cast<std::byte*>(memory_.data()), tensor::DType::bf16, rows_, cols_, stride_};
  }
  /// Row by row; nothing when a gap was written to.
  std::optional<Floats> values() const {
    const std::vector<tensor::Bf16> x = memory_.download();
    Floats values;
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < stride_; ++c) {
        const float value = tensor::to_float(x[r * stride_ + c]);
        if (c < cols_)
          values.push_back(value);
        else if (!std::isnan(value))
          return std::nullopt;
      }
    return values;
  }

 private:
  std::int64_t rows_, cols_, stride_;
  DeviceArray<tensor::Bf16> memory_;
};

struct AttentionResult {
  std::optional<Floats> out, d_qkv;  ///< nothing: written beside the matrix
  Floats log_sum;
};

inline AttentionResult run_attention(AttentionEngine& engine, const AttentionCase& what, const Array& x,
                                     const Array& dy) {
  const Shape& s = what.shape;
  const DeviceMatrix qkv(x, what.gap), d_out(dy, what.gap), out(s.tokens(), s.width(), what.gap),
      d_qkv(s.tokens(), s.packed(), what.gap);
  const DeviceArray<float> log_sum(s.heads * s.tokens());
  const auto places = what.document > 0 ? testing::documents_of(s, what.document) : testing::no_documents(s);
  const DeviceArray<std::int32_t> starts(places.start);
  kernels::Attention call;
  call.heads = s.heads;
  call.kv_heads = s.kv_heads;
  call.head_size = s.head_size;
  call.sequence = s.sequence;
  call.qkv = qkv.view();
  call.out = out.view();
  call.log_sum = log_sum.data();
  call.documents.start = what.document > 0 ? starts.data() : nullptr;
  DeviceArray<std::byte> workspace(engine.workspace(call) + 64);
  call.workspace = workspace.data() + 64;  // its alignment and no better
  engine.forward(stream(), call);
  finish();
  workspace.poison();  // nothing is left there for the backward pass
  engine.backward(stream(), call, {d_out.view(), d_qkv.view()});
  finish();
  return {out.values(), d_qkv.values(), log_sum.download()};
}

/// Natural log of the sum of exponentials of scaled scores, in the order of Attention::log_sum.
inline std::vector<double> log_sums(const AttentionCase& what, const Array& x) {
  const Shape& s = what.shape;
  std::vector<double> all;
  for (int h = 0; h < s.heads; ++h)
    for (std::int64_t t = 0; t < s.tokens(); ++t) {
      const std::int64_t row = t / s.sequence, place = t % s.sequence;
      const std::int64_t length = what.document + row;  // as documents_of() cuts
      const std::int64_t start = what.document > 0 ? place / length * length : 0;
      const std::int64_t key = s.width() + h / (s.heads / s.kv_heads) * s.head_size;
      double sum = 0;
      for (std::int64_t j = start; j <= place; ++j) {
        double score = 0;
        for (int c = 0; c < s.head_size; ++c)
          score += x.at(t, h * s.head_size + c) * x.at(row * s.sequence + j, key + c);
        sum += std::exp(score / std::sqrt(static_cast<double>(s.head_size)));
      }
      all.push_back(std::log(sum));
    }
  return all;
}

inline bool same_bits(const AttentionResult& a, const AttentionResult& b) {
  return a.out && b.out && testing::same_bits(*a.out, *b.out) && a.d_qkv && b.d_qkv &&
         testing::same_bits(*a.d_qkv, *b.d_qkv) && testing::same_bits(a.log_sum, b.log_sum);
}

/// "" when results are those of fp64, but for rounding, and the same when they are asked for again (the
/// latter only of a deterministic engine). Errors are relative to the largest value: bf16 rounds
/// probabilities, their gradients, sums of a query head and results, each by up to 2^-9.
inline std::string wrong_with(AttentionEngine& engine, const AttentionCase& what, bool deterministic) {
  constexpr double tolerance = 1e-2;
  const Shape& s = what.shape;
  const auto places = what.document > 0 ? testing::documents_of(s, what.document) : testing::no_documents(s);
  testing::Case c = testing::reference_of(s, places);
  const Array dy = testing::random_bf16(s.tokens(), s.width(), 7);
  reference::Tape tape;
  const int x = tape.input(c.inputs[0]);
  tape.backward(c.f(tape, {x}), dy);

  const AttentionResult got = run_attention(engine, what, c.inputs[0], dy);
  if (!got.out || !got.d_qkv) return what.name() + ": a gap between rows was written to";
  const double out = testing::distance(*got.out, c.out.v),
               d_qkv = testing::distance(*got.d_qkv, tape.gradient(x).v),
               log_sum = testing::distance(got.log_sum, log_sums(what, c.inputs[0]));
  if (!(out < tolerance && d_qkv < tolerance && log_sum < 1e-4))
    return fmt::format("{}: off by {} (out), {} (d_qkv), {} (log_sum)", what.name(), out, d_qkv, log_sum);
  if (deterministic && !same_bits(run_attention(engine, what, c.inputs[0], dy), got))
    return what.name() + ": other bits when asked again";
  return "";
}

inline std::vector<AttentionCase> attention_cases() {
  return {{{1, 1, 1, 1, 8}},
          {{2, 5, 2, 2, 16}},
          {{2, 131, 6, 2, 16}},
          {{2, 131, 6, 2, 16}, 40},
          {{1, 96, 4, 1, 64}, 0, 8},
          {{2, 300, 4, 2, 128}},
          {{2, 300, 4, 2, 128}, 130, 24},
          {{3, 64, 3, 3, 32}, 1},
          {{1, 260, 2, 2, 96}, 3}};
}

}  // namespace holdfast::cuda::test
