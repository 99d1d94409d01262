// How fast attention is, also as a share of what the processor's bf16 instructions reach beside it: printed,
// never judged, because machines and their neighbours differ. Operations are the causal ones only, half of a
// square: 4 * head_size per pair of tokens forward, 10 * head_size backward. Medians of interleaved runs.
// OMP_WAIT_POLICY=passive keeps threads that wait out of the time on the processor.
// Usage: attention_bench [type sequence heads kv_heads head_size threads]
#include <fmt/core.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/kernels/kernels.hpp"
#include "tests/kernels/bf16_peak.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

struct Shape {
  DType type = DType::bf16;
  int sequence = 1024, heads = 12, kv_heads = 12, head_size = 64, threads = 1;
};

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

/// Numbers of either type, and room to align them.
class Memory {
 public:
  Memory(DType type, std::int64_t rows, std::int64_t cols)
      : type_(type), rows_(rows), cols_(cols), bytes_(as_size(rows * cols * bytes_of(type) + 64)) {}
  Mat view() {
    return {bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64, type_, rows_,
            cols_, cols_};
  }
  void fill(unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const Mat all = view();
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c) {
        if (type_ == DType::fp32)
          all.row<float>(r)[c] = normal(generator);
        else
          all.row<Bf16>(r)[c] = tensor::to_bf16(normal(generator));
      }
  }

 private:
  DType type_;
  std::int64_t rows_, cols_;
  std::vector<std::byte> bytes_;
};

struct Times {
  std::vector<double> ms, share;
  void add(double seconds, double operations, double top) {
    ms.push_back(seconds * 1e3), share.push_back(operations / seconds / top);
  }
  std::string text(double operations) const {
    const std::string share_text =
        std::isfinite(share[0]) ? fmt::format("{:4.0f} %", median(share) * 100) : "";
    return fmt::format("{:8.2f} ms {:7.1f} GFLOP/s {}", median(ms), operations / median(ms) * 1e-6,
                       share_text);
  }
};

void measure(const Shape& s) {
  const auto k = make_cpu_kernels(s.threads);
  tensor::InlineStream stream;
  const std::int64_t packed = std::int64_t{s.heads + 2 * s.kv_heads} * s.head_size,
                     width = std::int64_t{s.heads} * s.head_size;
  Memory qkv(s.type, s.sequence, packed), d_qkv(s.type, s.sequence, packed), out(s.type, s.sequence, width),
      d_out(s.type, s.sequence, width), log_sum(DType::fp32, s.heads, s.sequence);
  qkv.fill(1), d_out.fill(2);
  Attention a;
  a.qkv = qkv.view(), a.out = out.view(), a.log_sum = log_sum.view().row<float>(0), a.heads = s.heads,
  a.kv_heads = s.kv_heads, a.head_size = s.head_size, a.sequence = s.sequence;
  Memory scratch(DType::fp32, 1, k->workspace(a) / 4);
  a.workspace = scratch.view().data;
  const AttentionGradient g{d_out.view(), d_qkv.view()};

  const double pairs = s.heads * 0.5 * s.sequence * (s.sequence + 1.0);
  const double forward_work = 4.0 * s.head_size * pairs, backward_work = 10.0 * s.head_size * pairs;
  const Bf16Path path = bf16_blocks().path();
  Times forward, backward;
  k->attention(stream, a);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double top = peak(path, 1) * s.threads, start = seconds_now();
    k->attention(stream, a);
    const double between = seconds_now();
    k->attention_backward(stream, a, g);
    const double end = seconds_now();
    forward.add((between - start) / s.threads, forward_work, top);
    backward.add((end - between) / s.threads, backward_work, top);
  }
  fmt::print("{} {:5} {:3}/{:<2} x {:3} {:2} threads | {} | {}\n", name_of(s.type), s.sequence, s.heads,
             s.kv_heads, s.head_size, s.threads, forward.text(forward_work), backward.text(backward_work));
  std::fflush(stdout);
}

}  // namespace
}  // namespace holdfast::testing

int main(int count, char** words) {
  using namespace holdfast;
  using testing::measure, kernels::DType;
  if (count == 7) {
    measure({std::string(words[1]) == "fp32" ? DType::fp32 : DType::bf16, std::stoi(words[2]),
             std::stoi(words[3]), std::stoi(words[4]), std::stoi(words[5]), std::stoi(words[6])});
    return 0;
  }
  fmt::print("{}; raw peak {:.1f} GFLOP/s of a thread; time on the processor / threads; forward | backward\n",
             kernels::bf16_identity(), testing::peak(kernels::bf16_blocks().path(), 1) * 1e-9);
  for (const int threads : {1, 2})
    for (const int sequence : {1024, 2048})
      for (const int heads : {12, 32})
        for (const int head_size : {64, 128})
          measure({DType::bf16, sequence, heads, heads, head_size, threads});
  for (const int threads : {1, 2}) {
    measure({DType::bf16, 1024, 12, 4, 64, threads});
    measure({DType::bf16, 1024, 12, 1, 64, threads});  // on 2 threads the other schedule of the backward pass
    measure({DType::fp32, 1024, 12, 12, 64, threads});
  }
}
