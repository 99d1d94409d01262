// What the decoder computes, beside the model in fp64; and that a text does not feel its neighbours.
#include <gmock/gmock.h>

#include "src/tools/infer/products.hpp"
#include "tests/tools/infer/model.hpp"

namespace holdfast::infer {
namespace {

using namespace holdfast::testing;

Floats prefill(Decoder& decoder, const Model& model, KvCache& text, const Tokens& tokens) {
  Floats logits(model.shape.vocabulary);
  EXPECT_TRUE(decoder.prefill(text, tokens, logits));
  return logits;
}
Floats step(Decoder& decoder, const Model& model, std::vector<KvCache*> texts, const Tokens& tokens) {
  const auto rows = static_cast<std::int64_t>(texts.size());
  Floats logits(rows * model.shape.vocabulary);
  decoder.step(texts, tokens, tensor::dense(logits.data(), rows, model.shape.vocabulary));
  return logits;
}

double loss_of_logits(const Floats& logits, int label) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return std::log(sum) + top - logits[label];
}

/// -log p of `label` behind the first `count` tokens.
double expected(const Model& model, const Tokens& tokens, int count, int label) {
  const Tokens inputs(tokens.begin(), tokens.begin() + count);
  Tokens labels(inputs.size(), -1);
  labels.back() = label;
  return reference::run_micro_batch(reference_of(model.shape, model.values), inputs, labels, {count, {}},
                                    false)
      .loss;
}

TEST(Decoder, ComputesTheModelTokenByToken) {
  for (const auto& shape : {micro(), micro_llama3(), micro_qwen(), micro_qwen3(), micro_biased(),
                            micro_smollm3(), micro_granite(), micro_phi4(), micro_olmo2(), micro_olmo3()})
    for (const DType type : {DType::fp32, DType::bf16}) {
      Model model(shape, type);
      const double tolerance = type == DType::fp32 ? 2e-4 : 0.15;
      Decoder decoder(model.parameters, *model.kernels, 2, 64);
      const Tokens tokens = text_of_length(20, shape.vocabulary, 3);
      KvCache text = decoder.begin();
      Floats logits = prefill(decoder, model, text, {tokens.begin(), tokens.begin() + 7});
      for (int count = 7; count < 20; ++count) {
        for (const int label : {0, 4, 9})
          EXPECT_NEAR(loss_of_logits(logits, label), expected(model, tokens, count, label), tolerance)
              << count << " tokens, label " << label;
        logits = step(decoder, model, {&text}, {tokens[count]});
      }
    }
}

TEST(Decoder, PromptsAreComputedInChunks) {
  Model model(micro_llama3());
  const Tokens tokens = text_of_length(2 * Decoder::chunk + 5, model.shape.vocabulary, 2);
  Decoder decoder(model.parameters, *model.kernels, 1, 1000);
  KvCache text = decoder.begin();
  const Floats logits = prefill(decoder, model, text, tokens);
  const auto count = static_cast<int>(tokens.size());
  for (const int label : {1, 6})
    EXPECT_NEAR(loss_of_logits(logits, label), expected(model, tokens, count, label), 1e-3);
  int asked = 0;
  KvCache other = decoder.begin();
  Floats none(logits.size());
  EXPECT_FALSE(decoder.prefill(other, tokens, none, [&] { return ++asked == 2; }));
}

TEST(Decoder, ATextDoesNotFeelItsNeighbours) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    Model model(micro_qwen(), type);
    const int vocabulary = model.shape.vocabulary;
    Decoder decoder(model.parameters, *model.kernels, 7, 64);
    const auto begin = [&](int key) {
      KvCache text = decoder.begin();
      prefill(decoder, model, text, text_of_length(3 + 4 * key, vocabulary, key));
      return text;
    };
    std::vector<Floats> alone;
    for (int key = 0; key < 7; ++key) {
      KvCache text = begin(key);
      step(decoder, model, {&text}, {key});
      alone.push_back(step(decoder, model, {&text}, {key + 1}));
    }
    std::vector<KvCache> texts;
    for (int key = 0; key < 7; ++key) texts.push_back(begin(key));
    std::vector<KvCache*> all;
    for (auto& text : texts) all.push_back(&text);
    step(decoder, model, all, {0, 1, 2, 3, 4, 5, 6});
    // The batch shrinks, and its order changes.
    const Floats some = step(decoder, model, {all[6], all[0], all[3], all[1], all[5]}, {7, 1, 4, 2, 6});
    const int order[] = {6, 0, 3, 1, 5};
    for (std::size_t i = 0; i < std::size(order); ++i)
      EXPECT_EQ(Floats(some.begin() + static_cast<std::ptrdiff_t>(i) * vocabulary,
                       some.begin() + static_cast<std::ptrdiff_t>(i + 1) * vocabulary),
                alone[order[i]])
          << order[i];
  }
}

template <class T>
void expect_product() {
  constexpr std::int64_t n = 130, k = 77;  // no multiple of anything
  const auto w = elements<T>(random_array(n, k, 1)), bias = elements<T>(random_array(1, n, 2));
  const auto x = elements<T>(random_array(19, k, 3));
  const auto multiply = [&](std::int64_t first, std::int64_t rows) {
    Floats y(rows * n);
    multiply_rows(tensor::dense(y.data(), rows, n), tensor::dense(x.data() + first * k, rows, k),
                  tensor::dense(w.data(), n, k), tensor::dense(bias.data(), 1, n));
    return y;
  };
  const Floats all = multiply(0, 19);
  for (std::int64_t r = 0; r < 19; ++r) {
    const Floats one = multiply(r, 1);
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = tensor::to_float(bias[c]);
      for (std::int64_t i = 0; i < k; ++i)
        sum += static_cast<double>(tensor::to_float(x[r * k + i])) *
               static_cast<double>(tensor::to_float(w[c * k + i]));
      ASSERT_NEAR(one[c], sum, 1e-4);
      ASSERT_EQ(one[c], all[r * n + c]);
    }
  }
}

TEST(Products, OfARowAreTheSameInEveryCompany) {
  expect_product<float>();
  expect_product<Bf16>();
}

}  // namespace
}  // namespace holdfast::infer
