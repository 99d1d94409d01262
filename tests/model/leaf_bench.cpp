// How fast a leaf is: printed, never judged, because machines and their neighbours differ.
#include <gtest/gtest.h>

#include "src/base/clock.hpp"
#include "src/model/transformer.hpp"
#include "tests/model/memory_weights.hpp"

namespace holdfast::testing {
namespace {

void measure(const char* name, const config::ModelShape& shape, int micro_batch, int sequence, int threads) {
  const auto kernels = kernels::make_cpu_kernels(threads);
  tensor::InlineStream stream;
  tensor::Arena arena("activations");
  model::Transformer transformer(shape, micro_batch, sequence, *kernels, stream, arena);
  arena.commit();
  MemoryWeights weights(shape, 1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(micro_batch) *
                                   static_cast<std::size_t>(sequence + 1));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(shape.vocabulary));
  double best = 1e9;
  for (int repeat = 0; repeat < 12; ++repeat) {
    const auto from = Clock::now();
    transformer.leaf(weights, tokens);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - from).count());
  }
  const double count = micro_batch * sequence;
  std::printf(
      "%-6s %8lld parameters, %d x %d tokens, %d threads: %7.2f ms, %8.0f tokens/s, %6.1f GFLOP/s, "
      "activations %.1f MB\n",
      name, static_cast<long long>(config::parameters_of(shape)), micro_batch, sequence, threads, best * 1e3,
      count / best, 6 * static_cast<double>(config::parameters_of(shape)) * count / best * 1e-9,
      static_cast<double>(arena.planned_bytes()) * 1e-6);
}

TEST(Bench, Leaf) {
  const config::ModelShape tiny;
  config::ModelShape small;
  small.vocabulary = 2048, small.width = 256, small.layers = 4, small.heads = 8, small.kv_heads = 4,
  small.ffn = 688;
  for (const int threads : {1, 2}) {
    measure("tiny", tiny, 1, 256, threads);
    measure("small", small, 1, 256, threads);
    measure("small", small, 4, 256, threads);
  }
}

}  // namespace
}  // namespace holdfast::testing
