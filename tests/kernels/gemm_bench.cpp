// Speed of bf16 matrix products of a 124M-parameter Llama shape, as a share of what the processor's
// multiplying instructions give in a loop without memory. Medians of interleaved runs; not a test.
// Usage: gemm_bench [tokens ...] (1024 and 4096 when none are given).
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/kernels/bf16_matmul.hpp"
#include "src/tensor/arena.hpp"
#include "tests/kernels/bf16_peak.hpp"

namespace {

using namespace holdfast;
using kernels::Bf16;
using kernels::Bf16Path;

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

/// GFLOP/s in registers on this many threads.
double peak(Bf16Path path, int threads) { return testing::peak(path, threads) * 1e-9; }

struct Layer {
  const char* name;
  std::int64_t in, out, max_tokens;  ///< more tokens take several products
};
constexpr Layer layers[] = {{"qkv", 768, 2304, 1 << 20},
                            {"attention out", 768, 768, 1 << 20},
                            {"gate|up", 768, 4096, 1 << 20},
                            {"down", 2048, 768, 1 << 20},
                            {"head", 768, 50304, kernels::head_chunk}};

/// Aligned as the trainer's memory is.
struct Memory {
  tensor::Arena arena;
  Bf16 *x, *w, *dy, *out;
  float* dw;

  explicit Memory(std::int64_t tokens) {
    const std::int64_t head_out = layers[4].out, head_weights = head_out * layers[4].in;
    const std::int64_t wide = std::max(head_out * std::min(tokens, kernels::head_chunk), tokens * 4096);
    const auto px = arena.plan<Bf16>("x", tokens * 2048), pw = arena.plan<Bf16>("w", head_weights),
               pdy = arena.plan<Bf16>("dy", wide), pout = arena.plan<Bf16>("out", wide);
    const auto pdw = arena.plan<float>("dw", head_weights);
    arena.commit();
    x = arena.at(px);
    w = arena.at(pw);
    dy = arena.at(pdy);
    out = arena.at(pout);
    dw = arena.at(pdw);
    const auto fill = [](Bf16* v, std::int64_t count, std::int64_t seed) {
      for (std::int64_t i = 0; i < count; ++i)
        v[i] = tensor::to_bf16(static_cast<float>((i + seed) * 7919 % 2003) / 1000.0f - 1.0f);
    };
    fill(x, tokens * 2048, 1), fill(w, head_weights, 2), fill(dy, wide, 3);
  }
};

void run(std::int64_t tokens, const Memory& memory) {
  const Bf16Path path = kernels::bf16_blocks().path();
  const auto one = kernels::make_cpu_kernels(1), two = kernels::make_cpu_kernels(2);
  tensor::InlineStream stream;
  for (const Layer& layer : layers) {
    const std::int64_t t = std::min(tokens, layer.max_tokens);
    const auto x = tensor::dense(static_cast<const Bf16*>(memory.x), t, layer.in);
    const auto w = tensor::dense(static_cast<const Bf16*>(memory.w), layer.out, layer.in);
    const auto dy = tensor::dense(static_cast<const Bf16*>(memory.dy), t, layer.out);
    const auto y = tensor::dense(memory.out, t, layer.out), dx = tensor::dense(memory.out, t, layer.in);
    const auto dw = tensor::dense(memory.dw, layer.out, layer.in);
    const double operations = 2.0 * static_cast<double>(t) * static_cast<double>(layer.in * layer.out);
    for (const std::string form : {"forward", "dX", "dW", "dW add"}) {
      std::vector<double> speed[2], share[2];
      for (int repeat = 0; repeat < 7; ++repeat)
        for (const int threads : {1, 2}) {
          auto& k = threads == 1 ? *one : *two;
          const double top = peak(path, threads), start = testing::seconds_now();
          if (form == "forward") k.matmul(stream, y, x, false, w, true, kernels::Write::replace);
          if (form == "dX") k.matmul(stream, dx, dy, false, w, false, kernels::Write::replace);
          if (form == "dW") k.matmul(stream, dw, dy, true, x, false, kernels::Write::replace);
          if (form == "dW add") k.matmul(stream, dw, dy, true, x, false, kernels::Write::add);
          const double rate = operations * threads / (testing::seconds_now() - start) * 1e-9;
          if (repeat == 0) continue;  // first use of the memory
          speed[threads - 1].push_back(rate);
          share[threads - 1].push_back(top > 0 ? rate / top : 0);
        }
      fmt::print("{:14} {:5} x {:5} x {:5}  {:8} {:7.1f} {:5.1f} %  {:7.1f} {:5.1f} %\n", layer.name, t,
                 layer.out, layer.in, form, median(speed[0]), 100 * median(share[0]), median(speed[1]),
                 100 * median(share[1]));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> tokens;
  for (int i = 1; i < argc; ++i) tokens.push_back(std::max(1L, std::atol(argv[i])));
  if (tokens.empty()) tokens = {1024, 4096};

  const Memory memory(*std::max_element(tokens.begin(), tokens.end()));
  const Bf16Path path = kernels::bf16_blocks().path();
  for (int i = 0; i < 20; ++i) peak(path, 2);  // to full clock
  fmt::print("{}; raw peak {:.1f} GFLOP/s on one thread, {:.1f} on two\n", kernels::bf16_identity(),
             peak(path, 1), peak(path, 2));
  fmt::print("{:14} {:>5}   {:>5}   {:>5}  {:8} {:>7} {:>7}  {:>7} {:>7}\n", "layer", "T", "out", "in",
             "product", "1T GF/s", "of peak", "2T GF/s", "of peak");
  for (const auto t : tokens) run(t, memory);
}
