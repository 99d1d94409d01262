// Against PyTorch and transformers, without Python: golden/<shape>/ holds a model's configuration and
// weights, and what PyTorch made of them in fp32 (scripts/golden_llama.py): logits, loss, gradients, and 20
// steps of AdamW. PyTorch's own distance from fp64 is in the files' metadata; tolerances are a few times
// that.
#include <gtest/gtest.h>

#include <set>

#include "src/base/as_size.hpp"
#include "src/config/hf_config.hpp"
#include "tests/model/stand.hpp"
#include "tests/support/safetensors.hpp"

namespace holdfast::testing {
namespace {

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(HOLDFAST_SOURCE_DIR) / "tests/model/golden" / name;
}

/// Hugging Face says n where we say 1 x n or n x 1.
std::vector<std::int64_t> torch_shape(const config::TensorSpec& t) {
  if (t.kind == config::TensorKind::matrix) return {t.rows, t.cols};
  return {t.elements()};
}

class TorchGolden : public ::testing::TestWithParam<const char*> {
 protected:
  TorchGolden()
      : shape_(config::load_hf_config(folder_of(GetParam()) / "config.json").shape),
        golden_(folder_of(GetParam()) / "golden.safetensors"),
        weights_(shape_, 1) {
    const auto lengths = golden_.shape("tokens");
    rows_ = static_cast<int>(lengths.at(0));
    sequence_ = static_cast<int>(lengths.at(1)) - 1;
    tokens_ = golden_.integers("tokens", lengths);
    stand_ = std::make_unique<Stand>(shape_, options_of(rows_, sequence_));
    load();
  }

  void load() {
    const Safetensors file(folder_of(GetParam()) / "weights.safetensors");
    std::set<std::string> unread;
    for (const auto& name : file.names()) unread.insert(name);
    for (std::size_t s = 0; s < weights_.stored.size(); ++s) {
      auto to = weights_.values[s].begin();
      for (int p = weights_.stored[s].first_part;
           p < weights_.stored[s].first_part + weights_.stored[s].parts; ++p) {
        const auto& spec = weights_.specs[p];
        const auto from = file.floats(spec.name, torch_shape(spec));
        to = std::copy(from.begin(), from.end(), to);
        unread.erase(spec.name);
      }
    }
    EXPECT_TRUE(unread.empty()) << "a weight of theirs that we do not have: " << *unread.begin();
  }
  Floats golden(const std::string& kind, const config::TensorSpec& spec) const {
    return golden_.floats(kind + spec.name, torch_shape(spec));
  }
  std::int64_t positions() const { return std::int64_t{rows_} * sequence_; }

  config::ModelShape shape_;
  Safetensors golden_;
  MemoryWeights weights_;
  int rows_ = 0, sequence_ = 0;
  Tokens tokens_;
  std::unique_ptr<Stand> stand_;
};

TEST_P(TorchGolden, LossAndGradients) {
  const auto loss = loss_of(stand_->transformer, weights_, tokens_);
  EXPECT_EQ(loss.valid, positions());
  const float want = golden_.floats("loss", {1})[0];
  EXPECT_NEAR(loss.mean(), want, 2e-6 * want);
  auto gradients = by_tensor(weights_, weights_.gradients);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    for (float& g : gradients[k]) g /= static_cast<float>(positions());  // theirs are of the mean loss
    EXPECT_LT(distance(gradients[k], golden("grad.", weights_.specs[k])), 1e-5) << weights_.specs[k].name;
  }
}

/// The tolerance is tight enough to see rotations that are a percent off.
TEST_P(TorchGolden, NoticesOtherRotations) {
  config::ModelShape other = shape_;
  other.rope_theta *= 1.01;
  Stand stand(other, options_of(rows_, sequence_));
  stand.transformer.forward_backward(weights_, tokens_);
  const auto gradients = by_tensor(weights_, weights_.gradients);
  double worst = 0;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    Floats want = golden("grad.", weights_.specs[k]);
    for (float& g : want) g *= static_cast<float>(positions());
    worst = std::fmax(worst, distance(gradients[k], want));
  }
  EXPECT_GT(worst, 1e-4);
}

/// Logits leave the kernel only as losses: with one label unmasked the loss is -log softmax(logits)[label].
TEST_P(TorchGolden, LogitsAsLogProbabilities) {
  const std::int64_t vocabulary = shape_.vocabulary;
  const Floats logits = golden_.floats("logits", {positions(), vocabulary});
  Tokens inputs;
  for (std::int64_t t = 0; t < positions(); ++t)
    inputs.push_back(tokens_[t / sequence_ * (sequence_ + 1) + t % sequence_]);
  double worst = 0;
  auto check = [&](std::int64_t position, std::int64_t label) {
    Tokens labels(inputs.size(), -1);
    labels[position] = static_cast<std::int32_t>(label);
    const float* row = &logits[position * vocabulary];
    double sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(row[v]));
    const double got =
        evaluation_of(stand_->transformer, weights_, model::Batch{inputs, labels, {}}).sum.value();
    worst = std::fmax(worst, std::fabs(got - (std::log(sum) - row[label])));
  };
  for (std::int64_t t = 0; t < positions(); ++t) check(t, (7 * t + 3) % vocabulary);
  for (const std::int64_t t : {std::int64_t{0}, sequence_ - std::int64_t{1}, positions() - 5})
    for (std::int64_t label = 0; label < vocabulary; ++label) check(t, label);
  EXPECT_LT(worst, 2e-5);
}

TEST_P(TorchGolden, TwentyStepsOfAdamW) {
  constexpr int steps = 20;
  constexpr double lr = 1e-3, decay = 0.1, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, clip_norm = 1.0;
  const Floats losses = golden_.floats("losses20", {steps}), norms = golden_.floats("norms20", {steps});
  std::vector<Floats> m, v;
  for (const auto& values : weights_.values) m.emplace_back(values.size()), v.emplace_back(values.size());
  for (int step = 0; step < steps; ++step) {
    const auto i = as_size(step);
    const auto loss = loss_of(stand_->transformer, weights_, tokens_);
    EXPECT_NEAR(loss.mean(), losses[i], 5e-6 * losses[i]) << "step " << step;
    tensor::ExactSum squared;
    for (const Floats& g : weights_.gradients)
      stand_->kernels->sum_squares(stand_->stream, g.data(), static_cast<std::int64_t>(g.size()), &squared);
    const auto valid = static_cast<double>(loss.valid);
    const double norm = std::sqrt(squared.value()) / valid;
    EXPECT_NEAR(norm, norms[i], 5e-5 * norms[i]) << "step " << step;
    const double clip = norm > clip_norm ? clip_norm / norm : 1;
    for (std::size_t s = 0; s < m.size(); ++s) {
      const auto kind = weights_.specs[weights_.stored[s].first_part].kind;
      kernels::AdamW a;
      a.parameter = a.new_parameter = weights_.values[s].data();
      a.gradient = weights_.gradients[s].data();
      a.m = a.new_m = m[s].data();
      a.v = a.new_v = v[s].data();
      a.count = static_cast<std::int64_t>(m[s].size());
      stand_->kernels->adamw(stand_->stream, a,
                             kernels::step_scalars(lr, kind == config::TensorKind::matrix ? decay : 0.0,
                                                   beta1, beta2, epsilon, step + 1, clip / valid));
    }
  }
  EXPECT_LT(losses.back(), losses.front() - 0.5) << "theirs learned";
  // 20 steps of up to 1e-3 each. AdamW divides by the gradient's own size, so the few elements whose gradient
  // is about zero (key biases) go their own way; the others must not.
  const auto values = by_tensor(weights_, weights_.values);
  double worst = 0, squares = 0, count = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const Floats want = golden("after20.", weights_.specs[k]);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double difference = std::fabs(static_cast<double>(values[k][i]) - want[i]);
      worst = std::fmax(worst, difference);
      squares += difference * difference;
      count += 1;
    }
  }
  EXPECT_LT(worst, 5e-4);
  EXPECT_LT(std::sqrt(squares / count), 2e-6);
  std::printf("%s: weights after 20 steps are off by %.1e at most, %.1e rms\n", GetParam(), worst,
              std::sqrt(squares / count));
}

INSTANTIATE_TEST_SUITE_P(Shapes, TorchGolden,
                         ::testing::Values("llama2", "llama3", "qwen2", "llama_tied", "qwen3", "nemo",
                                           "llama_biased", "linear", "dynamic", "yarn", "smollm3", "phi3",
                                           "granite", "phi4_mini", "olmo2", "olmo3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace holdfast::testing
