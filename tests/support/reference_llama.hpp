#pragma once
// The Llama family (Llama 2 and 3, Qwen 2 and 3) and its training step in fp64, written from the papers on
// the autodiff tape, for tests to compare with.
#include <cstdint>
#include <vector>

#include "src/config/model_shape.hpp"
#include "tests/support/reference_tape.hpp"

namespace holdfast::reference {

using Tokens = std::vector<std::int32_t>;

/// Row by row; start[t] is the place in its row where the document of token t begins. Empty: 0 everywhere.
struct Places {
  std::int64_t sequence = 1;
  Tokens start;
  std::int64_t start_of(std::int64_t t) const { return start.empty() ? 0 : start[t]; }
  std::int64_t position(std::int64_t t) const { return t % sequence - start_of(t); }
};

/// x / sqrt(mean(x^2) + epsilon) * gain, row by row
Tape::Var rms_norm(Tape&, Tape::Var x, Tape::Var gain, double epsilon);
/// Llama 3.1's stretching of wavelengths; factor 1: none. Or longrope's: by a factor for each.
struct Stretch {
  double factor = 1, low = 1, high = 4, original = 8192;
  double magnitude = 1;  ///< of sines and cosines
  std::vector<double> factors = {};
};
/// Radians from one position to the next, of pair j of `half`.
double rope_frequency(std::int64_t j, std::int64_t half, double theta, const Stretch&);
/// One head: T x head_size, "rotate half" of its first `rotary` elements; 0: of all.
Tape::Var rope(Tape&, Tape::Var x, const Places&, double theta, const Stretch& = {}, std::int64_t rotary = 0);
/// q: T x heads * head_size, k and v: T x kv_heads * head_size, rotated already. Causal, within documents and
/// within the last `window` tokens; 0: all.
Tape::Var attention(Tape&, Tape::Var q, Tape::Var k, Tape::Var v, int heads, int kv_heads, const Places&,
                    double scale = 0, std::int64_t window = 0);
/// silu(gate) * up
Tape::Var swiglu(Tape&, Tape::Var gate, Tape::Var up);

/// Weights in the order of config::tensors_of().
struct Model {
  config::ModelShape shape;
  std::vector<Array> weights;
};
struct MicroBatch {
  double loss = 0;  ///< sum over valid labels
  std::int64_t valid = 0;
  std::vector<Array> gradients;  ///< of the sum; like Model::weights
};
MicroBatch run_micro_batch(const Model&, const Tokens& inputs, const Tokens& labels, const Places&,
                           bool gradients);

struct Optimizer {
  double lr = 1e-3, min_lr = 1e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1,
         clip_norm = 1.0;
  int warmup = 5, steps = 20;
};
/// Linear warmup to lr, then a cosine to min_lr at the last step. `step` counts from 0.
double learning_rate(const Optimizer&, int step);

/// AdamW with clipping of the global gradient norm.
class Trainer {
 public:
  Trainer(Model model, Optimizer optimizer);
  /// One update with the summed gradients of a step's micro-batches; returns the mean loss before it.
  double step(const std::vector<MicroBatch>& micro_batches);
  const Model& model() const { return model_; }
  double norm() const { return norm_; }  ///< of the latest step's mean gradient, before clipping

 private:
  Model model_;
  Optimizer optimizer_;
  std::vector<Array> m_, v_;
  int steps_ = 0;
  double norm_ = 0;
};

}  // namespace holdfast::reference
