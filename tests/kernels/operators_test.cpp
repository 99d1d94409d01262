// Every operator of the product, forward and backward, against the fp64 reference; the reference's gradients
// against finite differences.
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

constexpr double close = 1e-5;

class Operators : public ::testing::Test {
 protected:
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};

TEST_F(Operators, MatmulAgreesForEveryTransposeAndOddSizes) {
  for (const auto& [m, n, depth] : {std::array{1, 1, 1}, {3, 5, 7}, {257, 259, 65}, {64, 300, 513}}) {
    const Array a = random_array(m, depth, 1), b = random_array(depth, n, 2);
    Array at(depth, m), bt(n, depth);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < depth; ++j) at.at(j, i) = a.at(i, j);
    for (int i = 0; i < depth; ++i)
      for (int j = 0; j < n; ++j) bt.at(j, i) = b.at(i, j);
    reference::Tape tape;
    const Array want = tape.value(tape.matmul(tape.input(a), tape.input(b)));
    const Floats fa = floats(a), fb = floats(b), fat = floats(at), fbt = floats(bt);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        Floats y(static_cast<std::size_t>(m) * n, NAN);
        const ConstMat left = ta ? view(fat, m) : view(fa, depth),
                       right = tb ? view(fbt, depth) : view(fb, n);
        k->matmul(stream, view(y, n), left, ta, right, tb, Write::replace);
        EXPECT_LT(distance(y, want.v), close) << m << "x" << n << "x" << depth << " " << ta << tb;
        // add: the same product, then one addition
        Floats sum(y.size(), 0.75f);
        k->matmul(stream, view(sum, n), left, ta, right, tb, Write::add);
        for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(sum[i], 0.75f + y[i]);
      }
  }
}

TEST_F(Operators, MatmulRespectsStrides) {
  const Floats a = floats(random_array(5, 9, 1)), b = floats(random_array(4, 9, 2));
  Floats y(5 * 7, 42.0f), whole(5 * 4);
  k->matmul(stream, Mat{y.data() + 1, 5, 4, 7}, view(a, 9).cols_at(2, 6), false, view(b, 9).cols_at(2, 6),
            true, Write::replace);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 7; ++j) {
      double want = 42;
      if (j >= 1 && j < 5) {
        want = 0;
        for (int c = 2; c < 8; ++c) want += double(a[i * 9 + c]) * b[(j - 1) * 9 + c];
      }
      EXPECT_NEAR(y[static_cast<std::size_t>(i * 7 + j)], want, 1e-5);
    }
}

TEST_F(Operators, MatmulRefusesShapesThatDoNotFit) {
  Floats a(6), y(4);
  EXPECT_THROW(k->matmul(stream, view(y, 2), view(a, 3), false, view(a, 3), false, Write::replace),
               std::logic_error);
}

void check_norm(Kernels& k, tensor::Stream& stream, std::int64_t tokens, std::int64_t d, bool differences) {
  const double epsilon = 1e-5;
  const Case c({random_array(tokens, d, 1), random_array(tokens, d, 2), random_array(1, d, 3)},
               [&](reference::Tape& t, const std::vector<int>& in) {
                 return reference::rms_norm(t, t.add(in[0], in[1]), in[2], epsilon);
               });
  if (differences) c.check_finite_differences();
  const Floats residual = floats(c.inputs[0]), branch = floats(c.inputs[1]), gain = floats(c.inputs[2]),
               dy = floats(c.seed);
  Floats sum(residual.size()), out(residual.size()), rms(static_cast<std::size_t>(tokens));
  k.norm(stream,
         {view(residual, d), view(branch, d), view(sum, d), view(out, d), gain.data(), rms.data(), 1e-5f});
  EXPECT_LT(distance(out, c.out.v), close);
  Floats dx(sum.size(), NAN), dgain(gain.size(), NAN);
  k.norm_backward(stream, {view(sum, d), view(dy, d), gain.data(), rms.data(), view(dx, d), dgain.data(),
                           Write::replace});
  EXPECT_LT(distance(dx, c.gradients[0].v), close);
  EXPECT_LT(distance(dgain, c.gradients[2].v), close);
  Floats more(dx.size(), 1.0f);  // what arrives along the residual
  k.norm_backward(
      stream, {view(sum, d), view(dy, d), gain.data(), rms.data(), view(more, d), dgain.data(), Write::add});
  for (std::size_t i = 0; i < dx.size(); ++i)
    ASSERT_NEAR(more[i], 1.0f + dx[i], 1e-5 * (1 + std::fabs(dx[i])));
  // Without a branch the residual itself is normalised.
  Floats again(out.size());
  k.norm(stream, {view(std::as_const(sum), d), {}, {}, view(again, d), gain.data(), rms.data(), 1e-5f});
  EXPECT_EQ(again, out);
}

TEST_F(Operators, NormAndItsFusedResidual) {
  check_norm(*k, stream, 3, 5, true);
  check_norm(*k, stream, 1, 2, true);
  check_norm(*k, stream, 131, 67, false);
  check_norm(*k, stream, 200, 256, false);
}

void check_swiglu(Kernels& k, tensor::Stream& stream, std::int64_t tokens, std::int64_t f, double scale,
                  bool differences) {
  const Case c({random_array(tokens, 2 * f, 1, scale)}, [&](reference::Tape& t, const std::vector<int>& in) {
    return reference::swiglu(t, t.columns(in[0], 0, f), t.columns(in[0], f, f));
  });
  if (differences) c.check_finite_differences();
  const Floats x = floats(c.inputs[0]), dy = floats(c.seed);
  Floats out(dy.size()), dx(x.size(), NAN);
  k.swiglu(stream, view(out, f), view(x, 2 * f));
  EXPECT_LT(distance(out, c.out.v), close);
  k.swiglu_backward(stream, view(dx, 2 * f), view(dy, f), view(x, 2 * f));
  EXPECT_LT(distance(dx, c.gradients[0].v), close);
}

TEST_F(Operators, Swiglu) {
  check_swiglu(*k, stream, 3, 7, 1, true);
  check_swiglu(*k, stream, 67, 177, 2, false);
  check_swiglu(*k, stream, 5, 33, 60, false);  // far into saturation
}

reference::Places places_of(std::int64_t rows, std::int64_t sequence, bool documents) {
  reference::Places p{sequence, {}};
  if (documents)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < sequence; ++i) {
        const std::int64_t length = sequence / 3 + 1 + r;  // some documents are cut by the row's end
        p.start.push_back(static_cast<std::int32_t>(i / length * length));
      }
  return p;
}
Documents documents(const reference::Places& p) { return {p.start.empty() ? nullptr : p.start.data()}; }

void check_rope(Kernels& k, tensor::Stream& stream, std::int64_t rows, int sequence, int heads, int kv,
                int size, bool docs) {
  const std::int64_t tokens = rows * sequence, cols = (heads + 2 * kv) * size;
  const auto places = places_of(rows, sequence, docs);
  const Case c({random_array(tokens, cols, 1)}, [&](reference::Tape& t, const std::vector<int>& in) {
    std::vector<int> parts;
    for (int h = 0; h < heads + kv; ++h)
      parts.push_back(reference::rope(t, t.columns(in[0], h * size, size), places, 10000.0));
    parts.push_back(t.columns(in[0], (heads + kv) * size, kv * size));
    return t.join_columns(parts);
  });
  if (tokens * cols < 300) c.check_finite_differences();
  Floats x = floats(c.inputs[0]), dx = floats(c.seed);
  Floats cosine(static_cast<std::size_t>(sequence * size / 2)), sine(cosine.size());
  rope_table(view(cosine, size / 2), view(sine, size / 2), 10000.0);
  k.rope(stream, {view(x, cols), heads, kv, size, sequence, view(cosine, size / 2), view(sine, size / 2),
                  documents(places), false});
  EXPECT_LT(distance(x, c.out.v), close);
  k.rope(stream, {view(dx, cols), heads, kv, size, sequence, view(cosine, size / 2), view(sine, size / 2),
                  documents(places), true});
  EXPECT_LT(distance(dx, c.gradients[0].v), close);
}

TEST_F(Operators, RopeWithPositionsOfDocuments) {
  check_rope(*k, stream, 2, 5, 2, 1, 4, false);
  check_rope(*k, stream, 2, 5, 2, 1, 4, true);
  check_rope(*k, stream, 3, 70, 4, 2, 18, true);
}

void check_attention(Kernels& k, tensor::Stream& stream, std::int64_t rows, int sequence, int heads, int kv,
                     int size, bool docs) {
  const std::int64_t tokens = rows * sequence, cols = (heads + 2 * kv) * size, d = heads * size;
  const auto places = places_of(rows, sequence, docs);
  const Case c({random_array(tokens, cols, 1)}, [&](reference::Tape& t, const std::vector<int>& in) {
    return reference::attention(t, t.columns(in[0], 0, d), t.columns(in[0], d, kv * size),
                                t.columns(in[0], d + kv * size, kv * size), heads, kv, places);
  });
  if (tokens * cols < 500) c.check_finite_differences();
  const Floats x = floats(c.inputs[0]), dy = floats(c.seed);
  Floats out(dy.size(), NAN), dx(x.size(), NAN), log_sum(static_cast<std::size_t>(heads * tokens));
  Attention a;
  a.qkv = view(x, cols), a.out = view(out, d), a.log_sum = log_sum.data();
  a.heads = heads, a.kv_heads = kv, a.head_size = size, a.sequence = sequence,
  a.documents = documents(places);
  Floats scratch(static_cast<std::size_t>(k.workspace(a)), NAN);
  a.workspace = scratch.data();
  k.attention(stream, a);
  EXPECT_LT(distance(out, c.out.v), close) << "sequence " << sequence;
  k.attention_backward(stream, a, {view(dy, d), view(dx, cols)});
  EXPECT_LT(distance(dx, c.gradients[0].v), close) << "sequence " << sequence;
}

TEST_F(Operators, AttentionOfOneToken) { check_attention(*k, stream, 2, 1, 2, 1, 4, false); }
TEST_F(Operators, AttentionSmall) {
  check_attention(*k, stream, 2, 5, 2, 2, 4, false);
  check_attention(*k, stream, 2, 6, 4, 2, 2, true);
}
TEST_F(Operators, AttentionWithGroupedQueriesOverStrips) {
  check_attention(*k, stream, 2, 131, 6, 2, 10, false);
  check_attention(*k, stream, 1, 64, 4, 1, 16, false);
  check_attention(*k, stream, 1, 65, 4, 4, 16, false);
}
TEST_F(Operators, AttentionInsideDocuments) { check_attention(*k, stream, 3, 150, 4, 2, 8, true); }

TEST_F(Operators, EmbeddingCopiesRowsAndAddsGradientsInOrder) {
  const reference::Tokens tokens = {3, 0, 3, -1, 6, 3, 0};
  const Case c({random_array(7, 5, 1)},
               [&](reference::Tape& t, const std::vector<int>& in) { return t.gather(in[0], tokens); });
  c.check_finite_differences();
  const Floats table = floats(c.inputs[0]), dy = floats(c.seed);
  Floats out(dy.size(), NAN), dtable(table.size(), NAN);
  k->embed(stream, view(out, 5), view(table, 5), tokens.data());
  EXPECT_EQ(distance(out, c.out.v), 0);
  k->embed_backward(stream, view(dtable, 5), view(dy, 5), tokens.data(), Write::replace);
  EXPECT_LT(distance(dtable, c.gradients[0].v), close);
  Floats tied(table.size(), 2.0f);
  k->embed_backward(stream, view(tied, 5), view(dy, 5), tokens.data(), Write::add);
  for (std::size_t i = 0; i < tied.size(); ++i) EXPECT_NEAR(tied[i], 2.0f + dtable[i], 1e-5);
}

void check_head(Kernels& k, tensor::Stream& stream, std::int64_t tokens, std::int64_t d,
                std::int64_t vocabulary, int mask_every) {
  reference::Tokens labels;
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < tokens; ++i) {
    labels.push_back(mask_every > 0 && i % mask_every == 0 ? -100
                                                           : static_cast<std::int32_t>(i * 7 % vocabulary));
    valid += labels.back() >= 0 ? 1 : 0;
  }
  Case c({random_array(tokens, d, 1), random_array(vocabulary, d, 2)},
         [&](reference::Tape& t, const std::vector<int>& in) {
           return t.cross_entropy(t.matmul_transposed(in[0], in[1]), labels);
         });
  if (tokens * d < 200) c.check_finite_differences();
  const Floats hidden = floats(c.inputs[0]), head = floats(c.inputs[1]);
  Floats d_hidden(hidden.size(), NAN), d_head(head.size(), NAN);
  Floats logits(static_cast<std::size_t>(std::min(tokens, head_chunk) * vocabulary));
  ExactSum loss, without;
  std::int64_t count = 0, count_without = 0;
  k.head_loss(stream, {view(hidden, d), view(head, d), labels.data(), view(logits, vocabulary),
                       view(d_hidden, d), view(d_head, d), &loss, &count});
  EXPECT_EQ(count, valid);
  EXPECT_NEAR(loss.value(), c.out.v[0], 1e-5 * c.out.v[0]);
  for (double& x : c.gradients[0].v) x /= c.seed.v[0];
  for (double& x : c.gradients[1].v) x /= c.seed.v[0];
  EXPECT_LT(distance(d_hidden, c.gradients[0].v), close);
  EXPECT_LT(distance(d_head, c.gradients[1].v), close);
  k.head_loss(stream, {view(hidden, d),
                       view(head, d),
                       labels.data(),
                       view(logits, vocabulary),
                       {},
                       {},
                       &without,
                       &count_without});
  EXPECT_EQ(without, loss);  // evaluation is the same loss, bit for bit
}

TEST_F(Operators, HeadAndCrossEntropyInChunks) {
  check_head(*k, stream, 4, 3, 7, 0);
  check_head(*k, stream, 5, 3, 7, 2);
  check_head(*k, stream, 259, 19, 67, 3);
  check_head(*k, stream, 600, 16, 130, 0);
}

TEST_F(Operators, AllLabelsMaskedGivesZeroGradients) {
  const Floats hidden(6, 0.5f), head(8, 0.25f);
  const reference::Tokens labels = {-1, -1, -1};
  Floats d_hidden(6, NAN), d_head(8, NAN), logits(12);
  ExactSum loss;
  std::int64_t valid = 0;
  k->head_loss(stream, {view(hidden, 2), view(head, 2), labels.data(), view(logits, 4), view(d_hidden, 2),
                        view(d_head, 2), &loss, &valid});
  EXPECT_EQ(valid, 0);
  EXPECT_EQ(loss, ExactSum());
  EXPECT_EQ(d_hidden, Floats(6, 0.0f));
  EXPECT_EQ(d_head, Floats(8, 0.0f));
}

TEST_F(Operators, ANotANumberReachesTheLoss) {
  Floats hidden(6, 0.5f), head(8, 0.25f), logits(12);
  hidden[3] = NAN;
  const reference::Tokens labels = {1, 2, 3};
  ExactSum loss;
  std::int64_t valid = 0;
  k->head_loss(stream, {view(std::as_const(hidden), 2),
                        view(std::as_const(head), 2),
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
