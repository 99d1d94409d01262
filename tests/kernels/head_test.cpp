// The head and its cross entropy against fp64, in every type, chunk by chunk.
#include "src/base/as_size.hpp"
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

template <class T>
class Head : public ::testing::Test {
 protected:
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Head, Types);

/// Loss and gradients of the sum of losses, with what the gradients may differ by: the gradient of a logit is
/// rounded to type T before the products.
struct Reference {
  double loss = 0;
  Array d_hidden, d_head, d_hidden_error, d_head_error;

  template <class T>
  static Reference of(const Array& hidden, const Array& head, const reference::Tokens& labels, T) {
    Reference r;
    r.d_hidden = r.d_hidden_error = Array(hidden.rows, hidden.cols);
    r.d_head = r.d_head_error = Array(head.rows, head.cols);
    const double rounding = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
    std::vector<double> p(head.rows);
    for (std::int64_t t = 0; t < hidden.rows; ++t) {
      const std::int32_t label = labels[t];
      if (label < 0) continue;
      double sum = 0;
      for (std::int64_t v = 0; v < head.rows; ++v) {
        double logit = 0;
        for (std::int64_t c = 0; c < head.cols; ++c) logit += hidden.at(t, c) * head.at(v, c);
        sum += p[v] = std::exp(logit);
      }
      r.loss += std::log(sum / p[label]);
      for (std::int64_t v = 0; v < head.rows; ++v) {
        const double g = p[v] / sum - (v == label ? 1 : 0);
        const double error = rounding * std::fabs(g);
        for (std::int64_t c = 0; c < head.cols; ++c) {
          r.d_hidden.at(t, c) += g * head.at(v, c);
          r.d_hidden_error.at(t, c) += error * std::fabs(head.at(v, c));
          r.d_head.at(v, c) += g * hidden.at(t, c);
          r.d_head_error.at(v, c) += error * std::fabs(hidden.at(t, c));
        }
      }
    }
    return r;
  }
};

/// Whether every element is as close as its allowance, the rounding of the result and fp32 sums permit.
template <class T>
void expect_close(const std::vector<T>& got, const Array& want, const Array& allowance) {
  const auto is = numbers(got);
  double size = 0;
  for (const double x : want.v) size = std::fmax(size, std::fabs(x));
  for (std::size_t i = 0; i < is.size(); ++i) {
    const double rounding = std::is_same_v<T, float> ? 0 : 0x1p-8 * (std::fabs(want.v[i]) + allowance.v[i]);
    ASSERT_NEAR(is[i], want.v[i], 1.01 * allowance.v[i] + rounding + 1e-5 * size) << "element " << i;
  }
}

template <class T>
void check_head(Kernels& k, tensor::Stream& stream, std::int64_t tokens, std::int64_t d,
                std::int64_t vocabulary, int mask_every) {
  reference::Tokens labels;
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    labels.push_back(mask_every > 0 && i % mask_every == 0 ? -100
                                                           : static_cast<std::int32_t>(i * 7 % vocabulary));
    valid += labels.back() >= 0 ? 1 : 0;
  }
  const Array h = random_of<T>(tokens, d, 1), w = random_of<T>(vocabulary, d, 2);
  const Reference want = Reference::of(h, w, labels, T());
  const auto hidden = elements<T>(h), head = elements<T>(w);
  std::vector<T> d_hidden(hidden.size());
  Floats d_head(head.size(), NAN), logits(as_size(std::min(tokens, head_chunk) * vocabulary));
  ExactSum loss, evaluated, frozen_loss;
  std::int64_t count = 0, evaluated_count = 0, frozen_count = 0;
  const HeadLoss call = {matrix(hidden, d),   matrix(head, d), labels.data(), view(logits, vocabulary),
                         matrix(d_hidden, d), view(d_head, d), &loss,         &count};
  k.head_loss(stream, call);
  EXPECT_EQ(count, valid);
  EXPECT_NEAR(loss.value(), want.loss, 1e-5 * want.loss);
  expect_close(d_hidden, want.d_hidden, want.d_hidden_error);
  expect_close(d_head, want.d_head, want.d_head_error);

  // Evaluation is the same loss, bit for bit, and a frozen head leaves the other gradient as it is.
  HeadLoss evaluation = call;
  evaluation.d_hidden = {}, evaluation.d_head = {}, evaluation.loss = &evaluated,
  evaluation.valid = &evaluated_count;
  k.head_loss(stream, evaluation);
  EXPECT_EQ(evaluated, loss);
  EXPECT_EQ(evaluated_count, valid);
  std::vector<T> again(hidden.size());
  HeadLoss frozen = call;
  frozen.d_hidden = matrix(again, d), frozen.d_head = {}, frozen.loss = &frozen_loss,
  frozen.valid = &frozen_count;
  k.head_loss(stream, frozen);
  EXPECT_EQ(again, d_hidden);
}

TYPED_TEST(Head, InChunks) {
  check_head<TypeParam>(*this->k, this->stream, 4, 3, 7, 0);
  check_head<TypeParam>(*this->k, this->stream, 5, 3, 7, 2);
  check_head<TypeParam>(*this->k, this->stream, head_chunk + 3, 19, 67, 3);
  check_head<TypeParam>(*this->k, this->stream, 2 * head_chunk + 88, 16, 130, 0);
}

TYPED_TEST(Head, GradientsOfTheReferenceAreFiniteDifferences) {
  const reference::Tokens labels = {2, -1, 6, 0};
  const Case c({random_of<TypeParam>(4, 3, 1), random_of<TypeParam>(7, 3, 2)},
               [&](reference::Tape& t, const std::vector<int>& in) {
                 return t.cross_entropy(t.matmul_transposed(in[0], in[1]), labels);
               });
  c.check_finite_differences();
  const Reference r = Reference::of(c.inputs[0], c.inputs[1], labels, TypeParam());
  for (std::size_t i = 0; i < r.d_hidden.v.size(); ++i)
    EXPECT_NEAR(r.d_hidden.v[i] * c.seed.v[0], c.gradients[0].v[i], 1e-12);
  for (std::size_t i = 0; i < r.d_head.v.size(); ++i)
    EXPECT_NEAR(r.d_head.v[i] * c.seed.v[0], c.gradients[1].v[i], 1e-12);
}

TYPED_TEST(Head, AllLabelsMaskedGivesZeroGradients) {
  const std::vector<TypeParam> hidden(6, element<TypeParam>(0.5f)), head(8, element<TypeParam>(0.25f));
  const reference::Tokens labels = {-1, -1, -1};
  std::vector<TypeParam> d_hidden(6, element<TypeParam>(NAN));
  Floats d_head(8, NAN), logits(12);
  ExactSum loss;
  std::int64_t valid = 0;
  this->k->head_loss(this->stream, {matrix(hidden, 2), matrix(head, 2), labels.data(), view(logits, 4),
                                    matrix(d_hidden, 2), view(d_head, 2), &loss, &valid});
  EXPECT_EQ(valid, 0);
  EXPECT_EQ(loss, ExactSum());
  EXPECT_EQ(numbers(d_hidden), std::vector<double>(6, 0));
  EXPECT_EQ(d_head, Floats(8, 0.0f));
}

TYPED_TEST(Head, ANotANumberReachesTheLoss) {
  std::vector<TypeParam> hidden(6, element<TypeParam>(0.5f)), head(8, element<TypeParam>(0.25f));
  Floats logits(12);
  hidden[3] = element<TypeParam>(NAN);
  const reference::Tokens labels = {1, 2, 3};
  ExactSum loss;
  std::int64_t valid = 0;
  this->k->head_loss(this->stream, {matrix(std::as_const(hidden), 2),
                                    matrix(std::as_const(head), 2),
                                    labels.data(),
                                    view(logits, 4),
                                    {},
                                    {},
                                    &loss,
                                    &valid});
  EXPECT_TRUE(loss.has_nan());
  EXPECT_TRUE(std::isnan(loss.value()));
}

}  // namespace
}  // namespace holdfast::testing
