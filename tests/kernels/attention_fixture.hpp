#pragma once
// Attention, forward and backward, in both types: against the fp64 reference, and the bits that must not
// change.
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/kernels/cpu_attention_bf16.hpp"
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {

using namespace kernels;

struct Shape {
  std::int64_t rows = 1;
  int sequence = 1, heads = 1, kv_heads = 1, head_size = 2;
  std::int64_t tokens() const { return rows * sequence; }
  std::int64_t packed() const { return (heads + 2 * kv_heads) * head_size; }
  std::int64_t width() const { return std::int64_t{heads} * head_size; }
};

/// Numbers that are exact in bf16.
inline Array random_bf16(std::int64_t rows, std::int64_t cols, unsigned seed, double scale = 1.0) {
  Array a = random_array(rows, cols, seed, scale);
  for (double& x : a.v) x = to_float(tensor::to_bf16(static_cast<float>(x)));
  return a;
}

/// A matrix of either type in memory of its own, at an odd address and with gaps between rows when `loose`.
class Matrix {
 public:
  Matrix(DType type, std::int64_t rows, std::int64_t cols, bool loose = false)
      : type_(type), rows_(rows), cols_(cols), stride_(loose ? cols + 3 : cols) {
    const std::size_t count = rows * stride_ + 1;
    if (type == DType::fp32)
      floats_.assign(count, NAN);
    else
      halves_.assign(count, tensor::to_bf16(NAN));
    shift_ = loose ? 1 : 0;
  }
  Matrix(DType type, const Array& values, bool loose = false)
      : Matrix(type, values.rows, values.cols, loose) {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c) set(r, c, static_cast<float>(values.at(r, c)));
  }
  Mat view() {
    void* data = type_ == DType::fp32 ? static_cast<void*>(floats_.data() + shift_) : halves_.data() + shift_;
    return {static_cast<std::byte*>(data), type_, rows_, cols_, stride_};
  }
  float at(std::int64_t r, std::int64_t c) const {
    const auto i = as_size(shift_ + r * stride_ + c);
    return type_ == DType::fp32 ? floats_[i] : to_float(halves_[i]);
  }
  void set(std::int64_t r, std::int64_t c, float x) {
    const auto i = as_size(shift_ + r * stride_ + c);
    if (type_ == DType::fp32)
      floats_[i] = x;
    else
      halves_[i] = tensor::to_bf16(x);
  }
  /// Rows [first, first + count) of columns [low, low + width).
  Floats part(std::int64_t first, std::int64_t count, std::int64_t low, std::int64_t width) const {
    Floats x;
    for (std::int64_t r = first; r < first + count; ++r)
      for (std::int64_t c = low; c < low + width; ++c) x.push_back(at(r, c));
    return x;
  }
  Floats all() const { return part(0, rows_, 0, cols_); }

 private:
  DType type_;
  std::int64_t rows_, cols_, stride_, shift_ = 0;
  Floats floats_;
  std::vector<Bf16> halves_;
};

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Result {
  Matrix out, d_qkv;
  Floats log_sum;
};
inline bool same_bits(const Result& a, const Result& b) {
  return same_bits(a.out.all(), b.out.all()) && same_bits(a.d_qkv.all(), b.d_qkv.all()) &&
         same_bits(a.log_sum, b.log_sum);
}

/// Everything an Attention points to; scratch memory is full of NaN.
struct Call {
  Shape shape;
  Matrix qkv, d_out;
  Result result;
  std::vector<std::byte> memory;
  Attention a;

  Call(DType type, const Shape& s, const Array& x, const Array& dy, const std::int32_t* start, bool loose)
      : shape(s),
        qkv(type, x, loose),
        d_out(type, dy, loose),
        result{Matrix(type, s.tokens(), s.width(), loose), Matrix(type, s.tokens(), s.packed(), loose),
               Floats(s.heads * s.tokens(), NAN)} {
    a.qkv = qkv.view();
    a.out = result.out.view();
    a.log_sum = result.log_sum.data();
    a.heads = s.heads;
    a.kv_heads = s.kv_heads;
    a.head_size = s.head_size;
    a.sequence = s.sequence;
    a.documents = {start};
  }
  AttentionGradient gradient() { return {d_out.view(), result.d_qkv.view()}; }
  void allocate(std::int64_t bytes) {
    memory.assign(as_size(bytes) + 64, std::byte{0xff});
    a.workspace = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  }
};

inline Result run(DType type, const Shape& shape, const Array& x, const Array& dy,
                  const std::int32_t* start = nullptr, int threads = 2, bool loose = false) {
  const auto k = make_cpu_kernels(threads);
  tensor::InlineStream stream;
  Call call(type, shape, x, dy, start, loose);
  call.allocate(k->workspace(call.a));
  k->attention(stream, call.a);
  k->attention_backward(stream, call.a, call.gradient());
  return call.result;
}

using Schedule = Bf16AttentionBackward::Schedule;

/// bf16 with the instructions of `path` and a chosen schedule of the backward pass, on one thread.
inline Result run_path(const Bf16Blocks& blocks, Schedule schedule, const Shape& shape, const Array& x,
                       const Array& dy, const std::int32_t* start = nullptr) {
  Call call(DType::bf16, shape, x, dy, start, false);
  const AttentionGradient gradient = call.gradient();
  const Bf16AttentionForward forward(call.a, blocks);
  const Bf16AttentionBackward backward(call.a, gradient, blocks, schedule);
  const auto run_all = [&](const auto& pass) {
    call.allocate(pass.workspace(1));
    for (std::int64_t i = 0; i < pass.pack_tasks(); ++i) pass.pack(i);
    for (std::int64_t i = 0; i < pass.tasks(); ++i) pass.run(i, 0);
  };
  run_all(forward);
  run_all(backward);
  return call.result;
}

inline Array rows_of_array(const Array& x, std::int64_t first, std::int64_t count) {
  Array part(count, x.cols);
  std::copy_n(x.v.begin() + first * x.cols, count * x.cols, part.v.begin());
  return part;
}

inline reference::Places no_documents(const Shape& s) { return {s.sequence, {}}; }
/// Documents of this length; some are cut by the row's end.
inline reference::Places documents_of(const Shape& s, std::int64_t length) {
  reference::Places p{s.sequence, {}};
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t i = 0; i < s.sequence; ++i)
      p.start.push_back(static_cast<std::int32_t>(i / (length + r) * (length + r)));
  return p;
}
inline const std::int32_t* start_of(const reference::Places& p) {
  return p.start.empty() ? nullptr : p.start.data();
}

inline Case reference_of(const Shape& s, const reference::Places& places, double scale = 1.0) {
  return Case({random_bf16(s.tokens(), s.packed(), 1, scale)},
              [s, places](reference::Tape& t, const std::vector<int>& in) {
                const std::int64_t d = s.width(), kv = s.kv_heads * s.head_size;
                return reference::attention(t, t.columns(in[0], 0, d), t.columns(in[0], d, kv),
                                            t.columns(in[0], d + kv, kv), s.heads, s.kv_heads, places);
              });
}

/// The largest error, relative to the largest value. bf16: rounding of probabilities, of their gradients, and
/// of results, each up to 2^-9; fp32: as all operators.
inline double tolerance(DType type) { return type == DType::fp32 ? 1e-5 : 8e-3; }

class AttentionIn : public ::testing::TestWithParam<DType> {};

}  // namespace holdfast::testing
