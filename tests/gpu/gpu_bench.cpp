// gpu_bench [TOKENS WIDTH FFN HEADS KV_HEADS SEQUENCE VOCABULARY]: how fast this GPU does what a training
// step consists of, beside what the GPU can do: the bandwidth of a copy, and the best product that the
// library has. Default: Llama-2-7B, two rows of 4096 tokens. Random data; medians of rounds that are
// interleaved. A line per operation, then RESULT {json}.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/cuda/device/cuda_kernels.hpp"
#include "src/cuda/runtime/cuda_runtime.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "tests/kernels/plain_sum.hpp"

namespace holdfast::cuda {
namespace {

using kernels::Write;
using tensor::dense;
using tensor::DType;

struct Shape {
  std::int64_t tokens = 8192, width = 4096, ffn = 11008;
  int heads = 32, kv_heads = 32, sequence = 4096;
  std::int64_t vocabulary = 32000;
  std::int64_t head_size() const { return width / heads; }
  std::int64_t packed() const { return (heads + 2 * std::int64_t{kv_heads}) * head_size(); }
};

/// Device memory, given out piece by piece.
class Memory {
 public:
  explicit Memory(Runtime& runtime) : runtime_(runtime) {}
  ~Memory() {
    for (void* piece : pieces_) runtime_.device_free(piece);
  }
  void* bytes(std::int64_t count) {
    pieces_.push_back(runtime_.device_alloc(count));
    return pieces_.back();
  }
  /// Noise that no unit is spared by: uniform in (-1, 1), made on the host from one block that is repeated.
  tensor::Mat bf16(CudaStream& stream, std::int64_t rows, std::int64_t cols) {
    auto* memory = static_cast<std::byte*>(bytes(rows * cols * 2));
    for (std::int64_t at = 0; at < rows * cols; at += noise_size)
      stream.upload(memory + at * 2, noise().data(), std::min(noise_size, rows * cols - at) * 2);
    return dense(memory, DType::bf16, rows, cols);
  }
  float* floats(CudaStream& stream, std::int64_t count) {
    auto* memory = static_cast<float*>(bytes(count * 4));
    stream.zero(memory, count * 4);
    return memory;
  }

 private:
  static constexpr std::int64_t noise_size = 1 << 20;
  static const std::vector<tensor::Bf16>& noise() {
    static const auto values = [] {
      std::vector<tensor::Bf16> v(noise_size);
      std::uint32_t state = 1;
      for (auto& x : v) {
        state = state * 1664525u + 1013904223u;
        x = tensor::to_bf16(static_cast<float>(static_cast<std::int32_t>(state)) * 4.6566129e-10f);
      }
      return v;
    }();
    return values;
  }
  Runtime& runtime_;
  std::vector<void*> pieces_;
};

enum class Ruler { bandwidth, products };

struct Item {
  std::string name;
  Ruler ruler;
  double work;  ///< bytes or floating point operations of one call
  std::function<void()> call;
  std::vector<double> seconds = {};
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Interleaved rounds, so that a clock that falls slows everybody.
void measure(std::vector<Item>& items, CudaStream& stream) {
  constexpr int rounds = 7;
  constexpr double least = 0.02;
  std::vector<int> repeats;
  const auto run = [&](const Item& item, int times) {
    stream.record().wait();
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) item.call();
    stream.record().wait();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (const Item& item : items) {
    run(item, 2);  // builds what is built when it is first needed
    repeats.push_back(std::clamp(static_cast<int>(least / std::max(run(item, 4) / 4, 1e-6)), 4, 2000));
  }
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < items.size(); ++i)
      items[i].seconds.push_back(run(items[i], repeats[i]) / repeats[i]);
}

int bench(const Shape& s) {
  const auto runtime = make_cuda_runtime(0, "");
  const auto gemm = make_cublas_gemm(*runtime, true);
  const auto attention = make_cudnn_attention(*runtime, true),
             free_attention = make_cudnn_attention(*runtime, false);
  Memory memory(*runtime);
  CudaStream stream(*runtime, "compute");
  const std::span scratch(static_cast<std::byte*>(memory.bytes(CudaKernels::scratch_bytes)),
                          CudaKernels::scratch_bytes);
  CudaKernels kernels(*runtime, *gemm, *attention, scratch),
      free_kernels(*runtime, *gemm, *free_attention, scratch);

  const std::int64_t t = s.tokens, d = s.width, f = s.ffn;
  const auto x = memory.bf16(stream, t, d), y = memory.bf16(stream, t, d), z = memory.bf16(stream, t, d),
             gain = memory.bf16(stream, 1, d), gate_up = memory.bf16(stream, t, 2 * f),
             d_gate_up = memory.bf16(stream, t, 2 * f), inner = memory.bf16(stream, t, f),
             qkv = memory.bf16(stream, t, s.packed()), d_qkv = memory.bf16(stream, t, s.packed()),
             w_up = memory.bf16(stream, 2 * f, d), w_down = memory.bf16(stream, d, f),
             w_qkv = memory.bf16(stream, s.packed(), d), head = memory.bf16(stream, s.vocabulary, d),
             square_a = memory.bf16(stream, 8192, 8192), square_b = memory.bf16(stream, 8192, 8192),
             square_y = memory.bf16(stream, 8192, 8192),
             cosine = memory.bf16(stream, s.sequence, s.head_size() / 2),
             sine = memory.bf16(stream, s.sequence, s.head_size() / 2);
  float *inverse_rms = memory.floats(stream, t), *d_gain = memory.floats(stream, d),
        *log_sum = memory.floats(stream, s.heads * t), *d_w = memory.floats(stream, 2 * f * d),
        *d_head = memory.floats(stream, s.vocabulary * d),
        *logits = memory.floats(stream, std::min(t, kernels::head_chunk) * s.vocabulary),
        *ones = memory.floats(stream, 1);
  const float one = 1;
  stream.upload(ones, &one, 4);
  constexpr std::int64_t slice = 1 << 27;  // elements of an optimizer's slice
  float *p = memory.floats(stream, slice), *g = memory.floats(stream, slice),
        *m = memory.floats(stream, slice), *v = memory.floats(stream, slice);
  auto* sum = reinterpret_cast<tensor::ExactSum*>(memory.floats(stream, 16));
  auto* digest = reinterpret_cast<kernels::DigestSums*>(memory.floats(stream, 16));
  auto* valid = reinterpret_cast<std::int64_t*>(memory.floats(stream, 2));
  auto* amax = reinterpret_cast<std::uint32_t*>(memory.floats(stream, 1));
  std::vector<std::int32_t> ids(t);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 7919 % as_size(s.vocabulary));
  auto* tokens = static_cast<std::int32_t*>(memory.bytes(t * 4));
  stream.upload(tokens, ids.data(), t * 4);
  const auto eight = dense(memory.bytes(t * 2 * f), DType::e4m3, t, 2 * f),
             eight_t = dense(memory.bytes(t * 2 * f), DType::e4m3, 2 * f, t);

  kernels::Attention call;
  call.qkv = qkv;
  call.out = y;
  call.log_sum = log_sum;
  call.heads = s.heads;
  call.kv_heads = s.kv_heads;
  call.head_size = static_cast<int>(s.head_size());
  call.sequence = s.sequence;
  call.workspace =
      static_cast<std::byte*>(memory.bytes(std::max(kernels.workspace(call), free_kernels.workspace(call))));
  const kernels::Quantize both{eight, eight_t, ones, amax};
  const kernels::StepScalars scalars = kernels::step_scalars(1e-4, 0.1, 0.9, 0.95, 1e-8, 10, 1);

  const auto product = [](double rows, double cols, double inner_size) {
    return 2 * rows * cols * inner_size;
  };
  const double td = static_cast<double>(t * d), tf = static_cast<double>(t * f),
               tq = static_cast<double>(t * s.packed());
  const double causal = 2 * static_cast<double>(t) * s.sequence * d;  // QK^T and PV, the causal half
  std::vector<Item> items = {
      {"copy", Ruler::bandwidth, 8.0 * slice, [&] { stream.copy(p, g, slice * 4); }},
      {"product 8192^3", Ruler::products, product(8192, 8192, 8192),
       [&] { kernels.matmul(stream, square_y, square_a, false, square_b, true, Write::replace); }},
      {"qkv forward", Ruler::products, product(t, s.packed(), d),
       [&] { kernels.matmul(stream, d_qkv, x, false, w_qkv, true, Write::replace); }},
      {"gate_up forward", Ruler::products, product(t, 2 * f, d),
       [&] { kernels.matmul(stream, gate_up, x, false, w_up, true, Write::replace); }},
      {"gate_up input gradient", Ruler::products, product(t, 2 * f, d),
       [&] { kernels.matmul(stream, z, d_gate_up, false, w_up, false, Write::replace); }},
      {"gate_up weight gradient", Ruler::products, product(t, 2 * f, d),
       [&] { kernels.matmul(stream, dense(d_w, 2 * f, d), d_gate_up, true, x, false, Write::replace); }},
      {"down forward", Ruler::products, product(t, d, f),
       [&] { kernels.matmul(stream, z, inner, false, w_down, true, Write::replace); }},
      {"attention", Ruler::products, causal, [&] { kernels.attention(stream, call); }},
      {"attention backward", Ruler::products, 2.5 * causal,
       [&] {
         kernels.attention_backward(stream, call, {x, d_qkv});
       }},
      {"attention backward, free", Ruler::products, 2.5 * causal,
       [&] {
         free_kernels.attention_backward(stream, call, {x, d_qkv});
       }},
      {"norm with residual", Ruler::bandwidth, 8 * td,
       [&] {
         kernels.norm(stream, {x, y, z, z, gain, inverse_rms, 1e-5f});
       }},
      {"norm backward", Ruler::bandwidth, 8 * td,
       [&] {
         kernels.norm_backward(stream, {x, y, gain, inverse_rms, z, d_gain, Write::add});
       }},
      {"swiglu", Ruler::bandwidth, 6 * tf, [&] { kernels.swiglu(stream, inner, gate_up); }},
      {"swiglu backward", Ruler::bandwidth, 10 * tf,
       [&] { kernels.swiglu_backward(stream, d_gate_up, inner, gate_up); }},
      {"rope", Ruler::bandwidth, 4 * tq * (s.heads + s.kv_heads) / (s.heads + 2.0 * s.kv_heads),
       [&] {
         kernels.rope(stream, {d_qkv,
                               s.heads,
                               s.kv_heads,
                               static_cast<int>(s.head_size()),
                               s.sequence,
                               cosine,
                               sine,
                               {},
                               false});
       }},
      {"embed", Ruler::bandwidth, 4 * td, [&] { kernels.embed(stream, z, head, tokens); }},
      {"quantize, also transposed", Ruler::bandwidth, 2 * 2 * tf + 4 * tf,
       [&] { kernels.quantize(stream, gate_up, both); }},
      {"convert fp32 to bf16", Ruler::bandwidth, 6.0 * slice,
       [&] { kernels.convert(stream, m, DType::bf16, p, DType::fp32, slice); }},
      {"ordered sum of two", Ruler::bandwidth, 12.0 * slice,
       [&] {
         const void* terms[] = {p, g};
         plain_sum(kernels, stream, m, terms, DType::fp32, slice, true);
       }},
      {"digest", Ruler::bandwidth, 4.0 * slice,
       [&] { kernels.digest(stream, g, DType::fp32, 0, slice, digest); }},
      {"sum of squares", Ruler::bandwidth, 4.0 * slice, [&] { kernels.sum_squares(stream, g, slice, sum); }},
      {"adamw", Ruler::bandwidth, 28.0 * slice,
       [&] {
         kernels.adamw(stream, {p, g, m, v, p, m, v, DType::fp32, slice}, scalars);
       }},
      {"head and loss", Ruler::products, 3 * product(t, s.vocabulary, d),
       [&] {
         kernels::HeadLoss h;
         h.hidden = x;
         h.head = head;
         h.labels = tokens;
         h.d_hidden = z;
         h.loss = sum;
         h.valid = valid;
         h.logits = dense(logits, std::min(t, kernels::head_chunk), s.vocabulary);
         h.d_head = dense(d_head, s.vocabulary, d);
         kernels.head_loss(stream, h);
       }},
  };
  if (runtime->facts().major >= 9) {
    const auto a8 = dense(memory.bytes(8192 * 8192), DType::e4m3, 8192, 8192),
               b8 = dense(memory.bytes(8192 * 8192), DType::e4m3, 8192, 8192);
    kernels.quantize(stream, square_a, {a8, {}, ones, nullptr}),
        kernels.quantize(stream, square_b, {b8, {}, ones, nullptr});
    items.push_back({"8-bit product 8192^3", Ruler::products, product(8192, 8192, 8192), [&, a8, b8] {
                       kernels.matmul_fp8(stream, square_y, a8, b8, ones, ones, Write::replace);
                     }});
  }
  // The library's best algorithm for each, as a run chooses it.
  kernels.take_notes(true), free_kernels.take_notes(true);
  for (const Item& item : items)
    if (item.ruler == Ruler::products) item.call();
  kernels.take_notes(false), free_kernels.take_notes(false);
  gemm->use_choices(gemm->choices(""));

  measure(items, stream);
  const double bandwidth = items[0].work / median(items[0].seconds),
               best = items[1].work / median(items[1].seconds);
  nlohmann::json result = {
      {"gpu", runtime->facts().name}, {"copy_gb_s", bandwidth / 1e9}, {"product_tflop_s", best / 1e12}};
  fmt::print("{}: copy {:.2f} TB/s, product {:.0f} TFLOP/s\n{:<28}{:>10}{:>12}{:>9}\n", runtime->facts().name,
             bandwidth / 1e12, best / 1e12, "operation", "us", "rate", "share");
  for (const Item& item : items) {
    const double seconds = median(item.seconds), rate = item.work / seconds;
    const double share = rate / (item.ruler == Ruler::bandwidth ? bandwidth : best);
    fmt::print("{:<28}{:>10.1f}{:>12}{:>8.0f} %\n", item.name, seconds * 1e6,
               item.ruler == Ruler::bandwidth ? fmt::format("{:.2f} TB/s", rate / 1e12)
                                              : fmt::format("{:.0f} TF/s", rate / 1e12),
               share * 100);
    result["operations"][item.name] = {{"us", seconds * 1e6}, {"rate", rate}, {"share", share}};
  }
  fmt::print("RESULT {}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace holdfast::cuda

int main(int argc, char** argv) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::puts("no GPU: nothing was measured");
    return 77;
  }
  holdfast::cuda::Shape s;
  if (argc == 8) {
    const auto number = [&](int i) { return std::atoi(argv[i]); };
    s = {number(1), number(2), number(3), number(4), number(5), number(6), number(7)};
  } else if (argc != 1) {
    std::fputs("usage: gpu_bench [TOKENS WIDTH FFN HEADS KV_HEADS SEQUENCE VOCABULARY]\n", stderr);
    return 2;
  }
  try {
    return holdfast::cuda::bench(s);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
