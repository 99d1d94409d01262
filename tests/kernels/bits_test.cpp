// The same bits for every number of threads, for every cut and place of pointwise work, and for every vector
// width, in every type.
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/kernels/cpu_math.hpp"
#include "src/tensor/arena.hpp"
#include "tests/kernels/compare.hpp"
#include "tests/kernels/plain_sum.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

template <class T>
class Bits : public ::testing::Test {
 protected:
  std::unique_ptr<Kernels> k = make_cpu_kernels(2);
  tensor::InlineStream stream;
};
using Types = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Bits, Types);

using Cut = std::pair<std::int64_t, std::int64_t>;  ///< first, count

/// Results of all kernels on one odd shape, large enough for several tasks each.
template <class T>
struct AllKernels {
  std::vector<std::vector<T>> typed;
  std::vector<Floats> floating;

  explicit AllKernels(int threads) {
    const auto k = make_cpu_kernels(threads);
    tensor::InlineStream stream;
    const std::int64_t tokens = 2 * 301, d = 6 * 22, f = 355, vocabulary = 777, packed = (6 + 4) * 22;
    typed.reserve(64), floating.reserve(64);  // views must stay valid
    auto room = [&](std::int64_t rows, std::int64_t cols) {
      typed.emplace_back(as_size(rows * cols), element<T>(NAN));
      return matrix(typed.back(), cols);
    };
    auto room32 = [&](std::int64_t rows, std::int64_t cols) {
      floating.emplace_back(as_size(rows * cols), NAN);
      return matrix(floating.back(), cols);
    };
    auto values = [&](std::int64_t rows, std::int64_t cols) {
      room32(rows, cols);
      return floating.back().data();
    };
    auto input = [](std::int64_t rows, std::int64_t cols, unsigned seed) {
      return elements<T>(random_array(rows, cols, seed));
    };
    const auto x = input(tokens, d, 1), w = input(vocabulary, d, 2), gain = input(1, d, 3);
    const auto qkv = input(tokens, packed, 4), gate_up = input(tokens, 2 * f, 5), dy = input(tokens, d, 6);

    k->matmul(stream, room(tokens, vocabulary), matrix(x, d), false, matrix(w, d), true, Write::replace);
    const ConstMat product = matrix(std::as_const(typed.back()), vocabulary);
    k->matmul(stream, room(tokens, d), product, false, matrix(w, d), false, Write::replace);
    const Mat d_w = room32(vocabulary, d);
    k->matmul(stream, d_w, product, true, matrix(x, d), false, Write::replace);
    k->matmul(stream, d_w, product, true, matrix(x, d), false, Write::add);

    const Mat sum = room(tokens, d), normed = room(tokens, d), d_sum = room(tokens, d);
    float *rms = values(1, tokens), *d_gain = values(1, d);
    k->norm(stream, {matrix(x, d), matrix(dy, d), sum, normed, matrix(gain, d), rms, 1e-5f});
    k->norm_backward(stream, {sum, matrix(dy, d), matrix(gain, d), rms, d_sum, d_gain, Write::replace});
    k->column_sums(stream, values(1, packed), matrix(qkv, packed));

    Attention a;
    const Mat out = room(tokens, d), d_qkv = room(tokens, packed);
    a.qkv = matrix(qkv, packed), a.out = out, a.log_sum = values(6, tokens), a.heads = 6, a.kv_heads = 2,
    a.head_size = 22, a.sequence = 301;
    tensor::Arena scratch("scratch");
    const auto piece = scratch.plan<std::byte>("attention", k->workspace(a));
    scratch.commit();
    a.workspace = scratch.at(piece);
    k->attention(stream, a);
    k->attention_backward(stream, a, {matrix(dy, d), d_qkv});
    std::vector<T> cosine(301 * 11), sine(301 * 11);
    rope_table(matrix(cosine, 11), matrix(sine, 11), 500.0);
    k->rope(stream, {d_qkv, 6, 2, 22, 301, matrix(cosine, 11), matrix(sine, 11), {}, true});

    const Mat activated = room(tokens, f);
    k->swiglu(stream, activated, matrix(gate_up, 2 * f));
    k->swiglu_backward(stream, room(tokens, 2 * f), activated, matrix(gate_up, 2 * f));

    std::vector<std::int32_t> indices;
    for (std::int64_t t = 0; t < tokens; ++t) indices.push_back(static_cast<std::int32_t>(t * t % 50));
    k->embed(stream, room(tokens, d), matrix(w, d), indices.data());
    k->embed_backward(stream, room32(vocabulary, d), matrix(dy, d), indices.data(), Write::replace);

    ExactSum loss;
    std::int64_t valid = 0;
    Floats logits(head_chunk * vocabulary);
    k->head_loss(stream, {matrix(x, d), matrix(w, d), indices.data(), view(logits, vocabulary),
                          room(tokens, d), room32(vocabulary, d), &loss, &valid});
    floating.push_back({});
    for (const auto word : loss.words())
      for (int part = 0; part < 4; ++part)
        floating.back().push_back(static_cast<float>(word >> 16 * part & 0xffff));
  }
};

template <class T>
void expect_same(const std::vector<std::vector<T>>& more, const std::vector<std::vector<T>>& one) {
  ASSERT_EQ(more.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(more[i].size(), one[i].size());
    EXPECT_EQ(std::memcmp(more[i].data(), one[i].data(), one[i].size() * sizeof(T)), 0) << "result " << i;
    for (const double x : numbers(one[i])) ASSERT_FALSE(std::isnan(x)) << "result " << i;
  }
}

TYPED_TEST(Bits, DoNotDependOnTheNumberOfThreads) {
  const AllKernels<TypeParam> one(1);
  for (const int threads : {2, 3, 5}) {
    const AllKernels<TypeParam> more(threads);
    SCOPED_TRACE(threads);
    expect_same(more.typed, one.typed);
    expect_same(more.floating, one.floating);
  }
}

TYPED_TEST(Bits, HaveAnIdentityThatDoesNotDependOnThreads) {
  const DType type = tensor::dtype_of<TypeParam>();
  const std::string identity = make_cpu_kernels(1)->identity(type);
  EXPECT_EQ(identity, make_cpu_kernels(2)->identity(type));
  EXPECT_EQ(identity.find("cpu " + std::string(name_of(type))), 0u) << identity;
}

/// `count` columns of x from `first` on, beginning `shift` elements into the memory.
template <class T>
std::vector<T> columns(const std::vector<T>& x, std::int64_t cols, const Cut& cut, std::int64_t shift) {
  const auto [first, count] = cut;
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / cols;
  std::vector<T> out(shift + rows * count);
  for (std::int64_t t = 0; t < rows; ++t)
    std::copy_n(x.begin() + t * cols + first, count, out.begin() + shift + t * count);
  return out;
}
template <class T, class V>
auto shifted(V& x, std::int64_t shift, std::int64_t cols) {
  return tensor::dense(x.data() + shift, (static_cast<std::int64_t>(x.size()) - shift) / cols, cols);
}

/// calls f(cut, shift) for many cuts of `count` columns and places in memory.
template <class F>
void every_cut(std::int64_t count, const F& f) {
  for (std::int64_t shift = 0; shift < 5; ++shift)
    for (const Cut& cut : {Cut{0, 1}, {1, 15}, {17, 31}, {5, 64}, {3, 77}, {count - 1, 1}}) f(cut, shift);
}

TYPED_TEST(Bits, OfSwigluDoNotDependOnShiftsAndCuts) {
  using T = TypeParam;
  const std::int64_t tokens = 37, f = 93;
  const auto gate = elements<T>(random_array(tokens, f, 5, 3.0)),
             up = elements<T>(random_array(tokens, f, 7)), dy = elements<T>(random_array(tokens, f, 6));
  /// Gate and up side by side, as the kernel wants them.
  auto packed = [&](const Cut& cut, std::int64_t shift) {
    std::vector<T> out(shift + tokens * 2 * cut.second);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(gate.begin() + t * f + cut.first, cut.second, out.begin() + shift + 2 * t * cut.second);
      std::copy_n(up.begin() + t * f + cut.first, cut.second, out.begin() + shift + (2 * t + 1) * cut.second);
    }
    return out;
  };
  const auto all = packed({0, f}, 0);
  std::vector<T> out(dy.size()), dx(all.size());
  this->k->swiglu(this->stream, matrix(out, f), matrix(all, 2 * f));
  this->k->swiglu_backward(this->stream, matrix(dx, 2 * f), matrix(dy, f), matrix(all, 2 * f));
  every_cut(f, [&](const Cut& cut, std::int64_t shift) {
    const std::int64_t width = cut.second;
    const auto in = packed(cut, shift), d_out = columns(dy, f, cut, shift);
    std::vector<T> got(d_out.size()), d_got(in.size());
    this->k->swiglu(this->stream, shifted<T>(got, shift, width), shifted<const T>(in, shift, 2 * width));
    this->k->swiglu_backward(this->stream, shifted<T>(d_got, shift, 2 * width),
                             shifted<const T>(d_out, shift, width), shifted<const T>(in, shift, 2 * width));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = 0; c < width; ++c) {
        auto at = [&](const std::vector<T>& x, std::int64_t i) { return x[i]; };
        const std::int64_t part = shift + 2 * t * width + c, whole = 2 * t * f + cut.first + c;
        ASSERT_EQ(at(got, shift + t * width + c), at(out, t * f + cut.first + c));
        ASSERT_EQ(at(d_got, part), at(dx, whole));
        ASSERT_EQ(at(d_got, part + width), at(dx, whole + f));
      }
  });
}

TYPED_TEST(Bits, OfRowKernelsDoNotDependOnTheRowsBesideThem) {
  using T = TypeParam;
  const std::int64_t tokens = 50, d = 68, half = 17;
  const auto x = elements<T>(random_array(tokens, d, 1)), branch = elements<T>(random_array(tokens, d, 2)),
             gain = elements<T>(random_array(1, d, 3)), dy = elements<T>(random_array(tokens, d, 4));
  std::vector<T> out(x.size()), sum(x.size()), dx(x.size()), turned = x, cosine(as_size(tokens * half)),
                                                             sine(cosine.size());
  Floats rms(50);
  rope_table(matrix(cosine, half), matrix(sine, half), 100.0);
  auto all = [&](const ConstMat& residual, const ConstMat& other, const ConstMat& d_out, const Mat& s,
                 const Mat& o, const Mat& d_s, const Mat& q, float* r, int first) {
    this->k->norm(this->stream, {residual, other, s, o, matrix(gain, d), r, 1e-5f});
    this->k->norm_backward(this->stream, {s, d_out, matrix(gain, d), r, d_s, nullptr, Write::replace});
    std::vector<std::int32_t> starts(q.rows);
    // A row alone is at position 0: its angles are taken from the table at `first` instead.
    this->k->rope(this->stream, {q,
                                 1,
                                 1,
                                 static_cast<int>(2 * half),
                                 static_cast<int>(q.rows),
                                 matrix(std::as_const(cosine), half).rows_at(first, q.rows),
                                 matrix(std::as_const(sine), half).rows_at(first, q.rows),
                                 {starts.data()},
                                 false});
  };
  all(matrix(x, d), matrix(branch, d), matrix(dy, d), matrix(sum, d), matrix(out, d), matrix(dx, d),
      matrix(turned, d), rms.data(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t shift = t % 5;
    auto alone = [&](const std::vector<T>& whole) {
      std::vector<T> row(shift + d);
      std::copy_n(whole.begin() + t * d, d, row.begin() + shift);
      return row;
    };
    const auto x1 = alone(x), branch1 = alone(branch), dy1 = alone(dy);
    auto sum1 = alone(x), out1 = sum1, dx1 = sum1, turned1 = sum1;
    float r = 0;
    all(shifted<const T>(x1, shift, d), shifted<const T>(branch1, shift, d), shifted<const T>(dy1, shift, d),
        shifted<T>(sum1, shift, d), shifted<T>(out1, shift, d), shifted<T>(dx1, shift, d),
        shifted<T>(turned1, shift, d), &r, static_cast<int>(t));
    ASSERT_EQ(r, rms[t]);
    for (const auto& [one, whole] : {std::pair{&sum1, &sum}, {&out1, &out}, {&dx1, &dx}, {&turned1, &turned}})
      ASSERT_EQ(std::memcmp(one->data() + shift, whole->data() + t * d, as_size(d) * sizeof(T)), 0);
  }
}

TYPED_TEST(Bits, OfSumsOverTokensDoNotDependOnTheColumnsBesideThem) {
  using T = TypeParam;
  const std::int64_t tokens = 150, d = 93;
  const auto x = elements<T>(random_array(tokens, d, 1));
  std::vector<std::int32_t> indices;
  for (std::int64_t t = 0; t < tokens; ++t) indices.push_back(static_cast<std::int32_t>(t * t % 7));
  Floats sums(d), table(as_size(7 * d));
  this->k->column_sums(this->stream, sums.data(), matrix(x, d));
  this->k->embed_backward(this->stream, view(table, d), matrix(x, d), indices.data(), Write::replace);
  every_cut(d, [&](const Cut& cut, std::int64_t shift) {
    const auto part = columns(x, d, cut, shift);
    Floats got(cut.second), rows(as_size(shift + 7 * cut.second));
    this->k->column_sums(this->stream, got.data(), shifted<const T>(part, shift, cut.second));
    this->k->embed_backward(this->stream, shifted<float>(rows, shift, cut.second),
                            shifted<const T>(part, shift, cut.second), indices.data(), Write::replace);
    ASSERT_EQ(got, columns(sums, d, cut, 0));
    ASSERT_EQ(rows, columns(table, d, cut, shift));
  });
}

TYPED_TEST(Bits, OfOptimizerKernelsDoNotDependOnShiftsAndCuts) {
  using T = TypeParam;
  const DType type = tensor::dtype_of<T>();
  const std::int64_t n = 40'003;
  const auto term = elements<T>(random_array(1, n, 1)), m = elements<T>(random_array(1, n, 2, 0.1));
  auto v = elements<T>(random_array(1, n, 3, 0.1));
  for (T& x : v) x = element<T>(std::fabs(tensor::to_float(x)));
  const Floats p = floats(random_array(1, n, 4)), g = floats(random_array(1, n, 5));
  const StepScalars s = step_scalars(1e-3, 0.1, 0.9, 0.95, 1e-8, 3, 0.01);
  struct Results {
    std::vector<T> m, v, narrow;
    Floats sum, p, wide;
  };
  auto run = [&](const Cut& cut, std::int64_t shift) {
    const auto [first, count] = cut;
    const auto term1 = columns(term, n, cut, shift), m1 = columns(m, n, cut, shift),
               v1 = columns(v, n, cut, shift);
    const auto p1 = columns(p, n, cut, shift), g1 = columns(g, n, cut, shift);
    Results r = {m1, v1, m1, p1, p1, p1};
    const std::array<const void*, 2> terms = {term1.data() + shift, m1.data() + shift};
    plain_sum(*this->k, this->stream, r.sum.data() + shift, terms, type, count, false);
    this->k->convert(this->stream, r.narrow.data() + shift, type, g1.data() + shift, DType::fp32, count);
    this->k->convert(this->stream, r.wide.data() + shift, DType::fp32, term1.data() + shift, type, count);
    this->k->adamw(this->stream,
                   {p1.data() + shift, g1.data() + shift, m1.data() + shift, v1.data() + shift,
                    r.p.data() + shift, r.m.data() + shift, r.v.data() + shift, type, count},
                   s);
    return r;
  };
  const Results whole = run({0, n}, 0);
  for (std::int64_t shift = 0; shift < 5; ++shift)
    for (const Cut& cut : {Cut{0, 1}, {1, 15}, {17, 31}, {5, 64}, {129, 39'874}, {n - 1, 1}}) {
      const Results part = run(cut, shift);
      auto same = [&](const auto& got, const auto& all) {
        return std::memcmp(got.data() + shift, all.data() + cut.first,
                           as_size(cut.second) * sizeof(got[0])) == 0;
      };
      ASSERT_TRUE(same(part.sum, whole.sum));
      ASSERT_TRUE(same(part.narrow, whole.narrow));
      ASSERT_TRUE(same(part.wide, whole.wide));
      ASSERT_TRUE(same(part.p, whole.p));
      ASSERT_TRUE(same(part.m, whole.m));
      ASSERT_TRUE(same(part.v, whole.v));
    }
}

/// The test is compiled for the plainest vectors, the kernels for the machine's.
TYPED_TEST(Bits, AreThoseOfTheNarrowestVectors) {
  using T = TypeParam;
  using tensor::to_float;
  const std::int64_t n = 1037;
  const auto x = elements<T>(random_array(1, 2 * n, 1, 4.0)), gain = elements<T>(random_array(1, n, 3)),
             dy = elements<T>(random_array(1, n, 4));
  std::vector<T> activated(n), normed(activated.size()), d_sum(activated.size()), d_x(x.size());
  Floats d_gain(activated.size());
  float r = 0;
  this->k->swiglu(this->stream, matrix(activated, n), matrix(x, 2 * n));
  this->k->swiglu_backward(this->stream, matrix(d_x, 2 * n), matrix(dy, n), matrix(x, 2 * n));
  const ConstMat row = matrix(x, 2 * n).cols_at(0, n);
  this->k->norm(this->stream, {row, {}, {}, matrix(normed, n), matrix(gain, n), &r, 1e-5f});
  this->k->norm_backward(this->stream, {row, matrix(dy, n), matrix(gain, n), &r, matrix(d_sum, n),
                                        d_gain.data(), Write::replace});
  EXPECT_EQ(r, 1.0f / std::sqrt(dot(x.data(), x.data(), n) / static_cast<float>(n) + 1e-5f));
  float lane[sum_lanes] = {};
  for (std::size_t i = 0; i < normed.size(); ++i)
    lane[i % sum_lanes] += to_float(gain[i]) * to_float(dy[i]) * to_float(x[i]);
  const float pull = merge_lanes(lane) * r * r * r / static_cast<float>(n);
  for (std::size_t i = 0; i < activated.size(); ++i) {
    const float gate = to_float(x[i]), up = to_float(x[i + as_size(n)]), d = to_float(dy[i]);
    const float sigmoid = 1.0f / (1.0f + exponential(-gate)), silu = gate * sigmoid;
    ASSERT_EQ(activated[i], element<T>(silu * up));
    ASSERT_EQ(d_x[i + as_size(n)], element<T>(d * silu));
    ASSERT_EQ(d_x[i], element<T>(d * up * (sigmoid + silu * (1.0f - sigmoid))));
    ASSERT_EQ(normed[i], element<T>(gate * r * to_float(gain[i])));
    ASSERT_EQ(d_sum[i], element<T>(r * (to_float(gain[i]) * d) - gate * pull));
    ASSERT_EQ(d_gain[i], d * (gate * r));
  }
}

TEST(Exponential, IsCloseAndKeepsNaN) {
  double worst = 0;
  for (int i = 0; i <= 2'000'000; ++i) {
    const float x = -87.0f + 175.0f * static_cast<float>(i) / 2'000'000.0f;
    const double want = std::exp(static_cast<double>(x));
    worst = std::fmax(worst, std::fabs(exponential(x) - want) / want);
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(exponential(NAN)));
  EXPECT_EQ(exponential(-INFINITY), exponential(-87.0f));
  EXPECT_EQ(exponential(INFINITY), exponential(88.0f));
}

}  // namespace
}  // namespace holdfast::testing
