// Every operator, forward and backward, in every type against the fp64 reference at the same (rounded)
// inputs; the reference's gradients against finite differences. What a result may differ by is the one
// rounding to its type and the error of fp32 arithmetic before it.
#include "src/base/as_size.hpp"
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

constexpr double close = 1e-5;  // of the largest element

class Operators : public ::testing::Test {
 protected:
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};
template <class T>
class TypedOperators : public Operators {};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(TypedOperators, Types);

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
        Floats y(as_size(m) * n, NAN);
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
  k->matmul(stream, view(y, 7).cols_at(1, 4), view(a, 9).cols_at(2, 6), false, view(b, 9).cols_at(2, 6), true,
            Write::replace);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 7; ++j) {
      double want = 42;
      if (j >= 1 && j < 5) {
        want = 0;
        for (int c = 2; c < 8; ++c) want += double(a[i * 9 + c]) * b[(j - 1) * 9 + c];
      }
      EXPECT_NEAR(y[i * 7 + j], want, 1e-5);
    }
}

TEST_F(Operators, MatmulRefusesShapesThatDoNotFit) {
  Floats a(6), y(4);
  EXPECT_THROW(k->matmul(stream, view(y, 2), view(a, 3), false, view(a, 3), false, Write::replace),
               std::logic_error);
}

template <class T>
void check_norm(Kernels& k, tensor::Stream& stream, std::int64_t tokens, std::int64_t d, bool differences) {
  const auto residual = elements<T>(random_array(tokens, d, 1)),
             branch = elements<T>(random_array(tokens, d, 2));
  std::vector<T> sum;  // rounded before it is normalised
  for (std::size_t i = 0; i < residual.size(); ++i)
    sum.push_back(element<T>(tensor::to_float(residual[i]) + tensor::to_float(branch[i])));
  const double epsilon = 1e-5;
  const Case c(
      {array_of(sum, d), random_of<T>(1, d, 3)},
      [&](reference::Tape& t, const std::vector<int>& in) {
        return reference::rms_norm(t, in[0], in[1], epsilon);
      },
      typed_seed<T>);
  if (differences) c.check_finite_differences();
  const auto gain = elements<T>(c.inputs[1]), dy = elements<T>(c.seed);
  std::vector<T> got_sum(residual.size()), out(residual.size());
  Floats rms(tokens);
  k.norm(stream, {matrix(residual, d), matrix(branch, d), matrix(got_sum, d), matrix(out, d), matrix(gain, d),
                  rms.data(), 1e-5f});
  EXPECT_EQ(got_sum, sum);
  EXPECT_LT(beyond_rounding(out, c.out.v), close);
  std::vector<T> dx(sum.size());
  Floats dgain(gain.size(), NAN);
  const NormGradient g = {matrix(std::as_const(sum), d),
                          matrix(dy, d),
                          matrix(gain, d),
                          rms.data(),
                          matrix(dx, d),
                          dgain.data(),
                          Write::replace};
  k.norm_backward(stream, g);
  EXPECT_LT(beyond_rounding(dx, c.gradients[0].v), close);
  EXPECT_LT(distance(dgain, c.gradients[1].v), close);
  // What arrives along the residual is added before the rounding; a frozen gain gets no gradient.
  auto more = elements<T>(random_array(tokens, d, 4));
  auto want = numbers(more);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += c.gradients[0].v[i];
  NormGradient adding = g;
  adding.d_sum = matrix(more, d);
  adding.d_gain = nullptr;
  adding.write = Write::add;
  k.norm_backward(stream, adding);
  EXPECT_LT(beyond_rounding(more, want), close);
  // Without a branch the residual itself is normalised, with one the sum may take its place.
  std::vector<T> again(out.size()), in_place = residual;
  k.norm(stream,
         {matrix(std::as_const(sum), d), {}, {}, matrix(again, d), matrix(gain, d), rms.data(), 1e-5f});
  EXPECT_EQ(again, out);
  k.norm(stream, {matrix(std::as_const(in_place), d), matrix(branch, d), matrix(in_place, d),
                  matrix(again, d), matrix(gain, d), rms.data(), 1e-5f});
  EXPECT_EQ(again, out);
  EXPECT_EQ(in_place, sum);
}

TYPED_TEST(TypedOperators, NormAndItsFusedResidual) {
  check_norm<TypeParam>(*this->k, this->stream, 3, 5, true);
  check_norm<TypeParam>(*this->k, this->stream, 1, 2, true);
  check_norm<TypeParam>(*this->k, this->stream, 131, 67, false);
  check_norm<TypeParam>(*this->k, this->stream, 200, 256, false);
}

TYPED_TEST(TypedOperators, ColumnSums) {
  for (const auto& [tokens, cols] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {64, 5}, {65, 33}, {300, 200}}) {
    const Array x = random_of<TypeParam>(tokens, cols, 1);
    std::vector<double> want(cols);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = 0; c < cols; ++c) want[c] += x.at(t, c);
    Floats got(want.size(), NAN);
    const auto in = elements<TypeParam>(x);
    this->k->column_sums(this->stream, got.data(), matrix(in, cols));
    EXPECT_LT(distance(got, want), close);
  }
}

template <class T>
void check_swiglu(Kernels& k, tensor::Stream& stream, std::int64_t tokens, std::int64_t f, double scale,
                  bool differences) {
  const Case c(
      {random_of<T>(tokens, 2 * f, 1, scale)},
      [&](reference::Tape& t, const std::vector<int>& in) {
        return reference::swiglu(t, t.columns(in[0], 0, f), t.columns(in[0], f, f));
      },
      typed_seed<T>);
  if (differences) c.check_finite_differences();
  const auto x = elements<T>(c.inputs[0]), dy = elements<T>(c.seed);
  std::vector<T> out(dy.size()), dx(x.size());
  k.swiglu(stream, matrix(out, f), matrix(x, 2 * f));
  EXPECT_LT(beyond_rounding(out, c.out.v), close);
  k.swiglu_backward(stream, matrix(dx, 2 * f), matrix(dy, f), matrix(x, 2 * f));
  EXPECT_LT(beyond_rounding(dx, c.gradients[0].v), close);
}

TYPED_TEST(TypedOperators, Swiglu) {
  check_swiglu<TypeParam>(*this->k, this->stream, 3, 7, 1, true);
  check_swiglu<TypeParam>(*this->k, this->stream, 67, 177, 2, false);
  check_swiglu<TypeParam>(*this->k, this->stream, 5, 33, 60, false);  // far into saturation
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

template <class T>
void check_rope(Kernels& k, tensor::Stream& stream, std::int64_t rows, int sequence, int heads, int kv,
                int size, bool docs) {
  const std::int64_t tokens = rows * sequence, cols = (heads + 2 * kv) * size, half = size / 2;
  const auto places = places_of(rows, sequence, docs);
  const Case c(
      {random_of<T>(tokens, cols, 1)},
      [&](reference::Tape& t, const std::vector<int>& in) {
        std::vector<int> parts;
        for (int h = 0; h < heads + kv; ++h)
          parts.push_back(reference::rope(t, t.columns(in[0], h * size, size), places, 10000.0));
        parts.push_back(t.columns(in[0], (heads + kv) * size, kv * size));
        return t.join_columns(parts);
      },
      typed_seed<T>);
  if (tokens * cols < 300) c.check_finite_differences();
  auto x = elements<T>(c.inputs[0]), dx = elements<T>(c.seed);
  Floats cosine(sequence * half), sine(cosine.size());
  rope_table(view(cosine, half), view(sine, half), 10000.0);
  k.rope(stream, {matrix(x, cols), heads, kv, size, sequence, view(cosine, half), view(sine, half),
                  documents(places), false});
  EXPECT_LT(beyond_rounding(x, c.out.v), close);
  k.rope(stream, {matrix(dx, cols), heads, kv, size, sequence, view(cosine, half), view(sine, half),
                  documents(places), true});
  EXPECT_LT(beyond_rounding(dx, c.gradients[0].v), close);
}

TYPED_TEST(TypedOperators, RopeWithPositionsOfDocuments) {
  check_rope<TypeParam>(*this->k, this->stream, 2, 5, 2, 1, 4, false);
  check_rope<TypeParam>(*this->k, this->stream, 2, 5, 2, 1, 4, true);
  check_rope<TypeParam>(*this->k, this->stream, 3, 70, 4, 2, 18, true);
}

TYPED_TEST(TypedOperators, RopeReadsTablesOfBf16) {
  const std::int64_t tokens = 40, half = 20, cols = 3 * 2 * half;
  std::vector<Bf16> cosine(tokens * half), sine(cosine.size());
  rope_table(matrix(cosine, half), matrix(sine, half), 10000.0);
  const Array in = random_of<TypeParam>(tokens, cols, 1);
  auto x = elements<TypeParam>(in);
  this->k->rope(this->stream, {matrix(x, cols),
                               1,
                               1,
                               static_cast<int>(2 * half),
                               static_cast<int>(tokens),
                               matrix(std::as_const(cosine), half),
                               matrix(std::as_const(sine), half),
                               {},
                               false});
  Array want = in;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t a = h * 2 * half + i, b = a + half, at = t * half + i;
        const double c = tensor::to_float(cosine[at]), s = tensor::to_float(sine[at]);
        want.at(t, a) = in.at(t, a) * c - in.at(t, b) * s;
        want.at(t, b) = in.at(t, b) * c + in.at(t, a) * s;
      }
  EXPECT_LT(beyond_rounding(x, want.v), close);
}

TYPED_TEST(TypedOperators, EmbeddingCopiesRowsAndAddsGradientsInOrder) {
  const reference::Tokens tokens = {3, 0, 3, -1, 6, 3, 0};
  const Case c(
      {random_of<TypeParam>(7, 5, 1)},
      [&](reference::Tape& t, const std::vector<int>& in) { return t.gather(in[0], tokens); },
      typed_seed<TypeParam>);
  c.check_finite_differences();
  const auto table = elements<TypeParam>(c.inputs[0]), dy = elements<TypeParam>(c.seed);
  std::vector<TypeParam> out(dy.size());
  Floats dtable(table.size(), NAN);
  this->k->embed(this->stream, matrix(out, 5), matrix(table, 5), tokens.data());
  EXPECT_EQ(numbers(out), c.out.v);
  this->k->embed_backward(this->stream, view(dtable, 5), matrix(dy, 5), tokens.data(), Write::replace);
  EXPECT_LT(distance(dtable, c.gradients[0].v), close);
  Floats tied(table.size(), 2.0f);
  this->k->embed_backward(this->stream, view(tied, 5), matrix(dy, 5), tokens.data(), Write::add);
  for (std::size_t i = 0; i < tied.size(); ++i) EXPECT_NEAR(tied[i], 2.0f + dtable[i], 1e-5);
}

}  // namespace
}  // namespace holdfast::testing
