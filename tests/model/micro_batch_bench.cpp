// How fast a micro-batch is and how much it keeps, by type and by mode of activation checkpointing: printed,
// never judged, because machines and their neighbours differ.
#include <gtest/gtest.h>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "tests/model/stand.hpp"

namespace holdfast::testing {
namespace {

using Mode = config::ActivationCheckpointing;

constexpr const char* mode_names[] = {"none", "selective", "attention", "full"};

/// Best of `repeats`, in one line.
void measure(const char* name, const config::ModelShape& shape, const model::Options& options, int threads,
             MemoryWeights& memory, int repeats) {
  PlainWeights weights(memory);
  Stand stand(shape, options, threads);
  Tokens tokens(as_size(options.micro_batch) * as_size(options.sequence + 1));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 7919 % as_size(shape.vocabulary));
  double best = 1e9;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto from = Clock::now();
    stand.transformer.forward_backward(weights, tokens);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - from).count());
  }
  const auto count = static_cast<double>(options.tokens()),
             parameters = static_cast<double>(config::parameters_of(shape));
  std::printf(
      "%-6s %d x %4d tokens, %s, checkpointing %-9s %d threads: %8.2f ms, %8.0f tokens/s, %7.1f GFLOP/s, "
      "activations %7.1f MB\n",
      name, options.micro_batch, options.sequence, std::string(name_of(options.activations)).c_str(),
      mode_names[as_size(options.activation_checkpointing)], threads, best * 1e3, count / best,
      6 * parameters * count / best * 1e-9, static_cast<double>(stand.arena.planned_bytes()) * 1e-6);
}

TEST(Bench, MicroBatch) {
  config::ModelShape small;
  small.vocabulary = 2048, small.width = 256, small.layers = 4, small.heads = 8, small.kv_heads = 4,
  small.ffn = 688;
  for (const DType type : {DType::fp32, DType::bf16}) {
    MemoryWeights weights(small, 1, type);
    for (const int threads : {1, 2}) measure("small", small, options_of(1, 256, type), threads, weights, 12);
    for (const Mode mode : {Mode::none, Mode::selective, Mode::attention, Mode::full})
      measure("small", small, options_of(4, 256, type, mode), 2, weights, 12);
  }
}

TEST(Bench, MicroBatchOf124MParameters) {
  config::ModelShape shape;
  shape.vocabulary = 50304, shape.width = 768, shape.layers = 12, shape.heads = shape.kv_heads = 12,
  shape.ffn = 2048, shape.max_sequence = 1024, shape.tied_embeddings = true;
  MemoryWeights weights(shape, 1, DType::bf16);
  for (const Mode mode : {Mode::none, Mode::selective, Mode::attention, Mode::full})
    measure("124M", shape, options_of(1, 1024, DType::bf16, mode), 2, weights, 3);
}

}  // namespace
}  // namespace holdfast::testing
