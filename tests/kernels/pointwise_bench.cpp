// How fast the memory-bound operators are, beside a copy of memory by the same threads: printed, never
// judged.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/kernels/kernels.hpp"
#include "tests/kernels/plain_sum.hpp"

namespace holdfast {
namespace {

using namespace kernels;
using tensor::Bf16;
using tensor::dense;

constexpr std::int64_t count = 24 << 20;                  // elements of an optimizer slice
constexpr std::int64_t tokens = 8192, d = 768, f = 2048;  // of a block, larger than the caches
constexpr int heads = 12, head_size = 64, sequence = 1024;

/// Small numbers of both signs, as elements of `type` from the memory's beginning.
std::vector<float> filled(std::int64_t n, DType type = DType::fp32) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 8 & 0xffff) - 32768) * 1e-5f;
  tensor::InlineStream stream;
  make_cpu_kernels(1)->convert(stream, x.data(), type, x.data(), DType::fp32, n);
  return x;
}

class Bench {
 public:
  explicit Bench(int threads) : threads_(threads), k(make_cpu_kernels(threads)) {
    fmt::print("\n{} thread(s)\n{:<28}{:>9}{:>9}{:>9}{:>9}\n", threads, "", "ms", "GB/s", "copy", "share");
  }

  void run() {
    optimizer();
    for (const DType type : {DType::fp32, DType::bf16}) block(type), reductions(type);
  }

 private:
  /// `bytes`: what must be read and written at least. Alternates with copies; the best of each, as neighbours
  /// only ever take time away.
  template <class Operator>
  void measure(const std::string& name, double bytes, const Operator& op) {
    double mine = 1e9, copying = 1e9;
    for (int repeat = 0; repeat < 9; ++repeat) {
      copying = std::min(copying, seconds([&] { copy(); }));
      mine = std::min(mine, seconds(op));
    }
    const double copy_rate = 8.0 * count / copying * 1e-9, rate = bytes / mine * 1e-9;
    fmt::print("{:<28}{:>9.2f}{:>9.1f}{:>9.1f}{:>8.0f}%\n", name, mine * 1e3, rate, copy_rate,
               100 * rate / copy_rate);
  }
  /// Processor time of every thread, which a busy machine disturbs less than the time on the wall.
  template <class Operator>
  double seconds(const Operator& op) const {
    const std::clock_t from = std::clock();
    op();
    return static_cast<double>(std::clock() - from) / CLOCKS_PER_SEC / threads_;
  }
  void copy() {
    const std::size_t part = from_.size() / as_size(threads_);
    std::vector<std::thread> others;
    for (std::size_t t = 0; t < as_size(threads_); ++t)
      others.emplace_back([&, t] { std::memcpy(&to_[t * part], &from_[t * part], part * sizeof(float)); });
    for (auto& thread : others) thread.join();
  }

  void optimizer() {
    const double n = count;
    auto p = filled(count), g = filled(count), m = filled(count), v = filled(count);
    for (float& x : v) x *= x;
    const StepScalars s = step_scalars(1e-4, 0.1, 0.9, 0.95, 1e-8, 10, 1e-3);
    measure("adamw", 28 * n, [&] {
      k->adamw(stream,
               {p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data(), DType::fp32, count}, s);
    });
    for (auto* x : {&m, &v}) k->convert(stream, x->data(), DType::bf16, x->data(), DType::fp32, count);
    measure("adamw, bf16 moments", 20 * n, [&] {
      k->adamw(stream,
               {p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data(), DType::bf16, count}, s);
    });
    ExactSum sum;
    measure("sum of squares", 4 * n, [&] { k->sum_squares(stream, g.data(), count, &sum); });
    measure("convert fp32 to bf16", 6 * n,
            [&] { k->convert(stream, m.data(), DType::bf16, g.data(), DType::fp32, count); });
    measure("convert bf16 to fp32", 6 * n,
            [&] { k->convert(stream, g.data(), DType::fp32, m.data(), DType::bf16, count); });
    measure("convert in place", 6 * n,
            [&] { k->convert(stream, p.data(), DType::bf16, p.data(), DType::fp32, count); });
  }

  void reductions(DType type) {
    const std::string suffix = ", " + std::string(name_of(type));
    const double n = count, size = static_cast<double>(bytes_of(type));
    const auto a = filled(count, type), b = filled(count, type);
    auto sum = filled(count);
    const std::array<const void*, 4> terms = {a.data(), b.data(), a.data(), b.data()};
    measure("ordered sum, first term" + suffix, n * (size + 4),
            [&] { plain_sum(*k, stream, sum.data(), std::span(terms).first(1), type, count, true); });
    measure("ordered sum, one term" + suffix, n * (size + 8),
            [&] { plain_sum(*k, stream, sum.data(), std::span(terms).first(1), type, count, false); });
    measure("ordered sum, two terms" + suffix, n * (2 * size + 8),
            [&] { plain_sum(*k, stream, sum.data(), std::span(terms).first(2), type, count, false); });
  }

  void block(DType type) {
    const std::string suffix = ", " + std::string(name_of(type));
    const double size = static_cast<double>(bytes_of(type)), td = tokens * d * size, tf = tokens * f * size;
    auto gain_memory = filled(d, type), wide = filled(tokens * 2 * f, type), wide_too = wide;
    auto a_memory = filled(tokens * f, type), b_memory = a_memory, c_memory = a_memory, e_memory = a_memory;
    auto matrix = [&](std::vector<float>& x, std::int64_t cols) {
      return dense(static_cast<void*>(x.data()), type, tokens, cols);
    };
    const Mat a = matrix(a_memory, d), b = matrix(b_memory, d), c = matrix(c_memory, d),
              e = matrix(e_memory, d);
    const ConstMat gain = dense(static_cast<const void*>(gain_memory.data()), type, 1, d);
    std::vector<float> rms(tokens), d_gain(2 * f);
    measure("norm" + suffix, 4 * td, [&] { k->norm(stream, {a, b, c, e, gain, rms.data(), 1e-5f}); });
    measure("norm backward" + suffix, 4 * td, [&] {
      k->norm_backward(stream, {a, b, gain, rms.data(), c, d_gain.data(), Write::add});
    });
    const Mat gate_up = matrix(wide, 2 * f), d_gate_up = matrix(wide_too, 2 * f), inner = matrix(a_memory, f);
    measure("swiglu" + suffix, 3 * tf, [&] { k->swiglu(stream, inner, gate_up); });
    measure("swiglu backward" + suffix, 5 * tf,
            [&] { k->swiglu_backward(stream, d_gate_up, inner, gate_up); });
    measure("column sums" + suffix, 2 * tf, [&] { k->column_sums(stream, d_gain.data(), gate_up); });
    std::vector<float> cosine(sequence * head_size / 2), sine(cosine.size());
    const Mat table_cosine = dense(static_cast<void*>(cosine.data()), type, sequence, head_size / 2),
              table_sine = dense(static_cast<void*>(sine.data()), type, sequence, head_size / 2);
    rope_table(table_cosine, table_sine, 1e4);
    measure("rope" + suffix, 4 * td, [&] {
      k->rope(stream,
              {matrix(wide, 3 * d), heads, heads, head_size, sequence, table_cosine, table_sine, {}, false});
    });
    std::vector<std::int32_t> indices(tokens);
    for (std::size_t t = 0; t < indices.size(); ++t)
      indices[t] = static_cast<std::int32_t>(t * 7919 % tokens);
    measure("embed" + suffix, 2 * td, [&] { k->embed(stream, b, a, indices.data()); });
    std::vector<float> table(tokens * d);
    measure("embed backward" + suffix, td + 8.0 * tokens * d, [&] {
      k->embed_backward(stream, dense(table.data(), tokens, d), b, indices.data(), Write::add);
    });
  }

  int threads_;
  std::unique_ptr<Kernels> k;
  tensor::InlineStream stream;
  std::vector<float> from_ = filled(count), to_ = filled(count);
};

}  // namespace
}  // namespace holdfast

/// pointwise_bench [threads...]
int main(int argc, char** argv) {
  std::vector<int> threads;
  for (int i = 1; i < argc; ++i) threads.push_back(std::atoi(argv[i]));
  if (threads.empty()) threads = {1, 2};
  for (const int n : threads) holdfast::Bench(n).run();
  return 0;
}
