// The same bits for every number of threads, for every cut of pointwise work, and for every vector width.
#include <cstring>

#include "src/kernels/cpu_math.hpp"
#include "tests/kernels/compare.hpp"

namespace holdfast::testing {
namespace {

using namespace kernels;

/// Results of all kernels on one odd shape, large enough for several tasks each.
std::vector<Floats> all_kernels(int threads) {
  const auto k = make_cpu_kernels(threads);
  tensor::InlineStream stream;
  const std::int64_t tokens = 2 * 301, d = 6 * 22, f = 355, vocabulary = 777, packed = (6 + 4) * 22;
  std::vector<Floats> results;
  auto room = [&](std::int64_t rows, std::int64_t cols) -> Mat {
    results.emplace_back(static_cast<std::size_t>(rows * cols), NAN);
    return view(results.back(), cols);
  };
  results.reserve(64);  // views must stay valid
  const Floats x = floats(random_array(tokens, d, 1)), w = floats(random_array(vocabulary, d, 2)),
               gain = floats(random_array(1, d, 3));
  const Floats qkv = floats(random_array(tokens, packed, 4)),
               gate_up = floats(random_array(tokens, 2 * f, 5)), dy = floats(random_array(tokens, d, 6));

  const Mat product = room(tokens, vocabulary);
  k->matmul(stream, product, view(x, d), false, view(w, d), true, Write::replace);
  k->matmul(stream, room(vocabulary, d), product, true, view(x, d), false, Write::replace);
  k->matmul(stream, product, view(x, d), false, view(w, d), true, Write::add);

  const Mat sum = room(tokens, d), normed = room(tokens, d), rms = room(1, tokens), d_sum = room(tokens, d),
            d_gain = room(1, d);
  k->norm(stream, {view(x, d), view(dy, d), sum, normed, gain.data(), rms.data, 1e-5f});
  k->norm_backward(stream, {sum, view(dy, d), gain.data(), rms.data, d_sum, d_gain.data, Write::replace});

  Attention a;
  const Mat out = room(tokens, d), log_sum = room(6, tokens), d_qkv = room(tokens, packed);
  a.qkv = view(qkv, packed), a.out = out, a.log_sum = log_sum.data, a.heads = 6, a.kv_heads = 2,
  a.head_size = 22, a.sequence = 301;
  Floats scratch(static_cast<std::size_t>(k->workspace(a)));
  a.workspace = scratch.data();
  k->attention(stream, a);
  k->attention_backward(stream, a, {view(dy, d), d_qkv});
  Floats cosine(301 * 11), sine(301 * 11);
  rope_table(view(cosine, 11), view(sine, 11), 500.0);
  k->rope(stream, {d_qkv, 6, 2, 22, 301, view(cosine, 11), view(sine, 11), {}, true});

  const Mat activated = room(tokens, f);
  k->swiglu(stream, activated, view(gate_up, 2 * f));
  k->swiglu_backward(stream, room(tokens, 2 * f), activated, view(gate_up, 2 * f));

  std::vector<std::int32_t> indices;
  for (std::int64_t t = 0; t < tokens; ++t) indices.push_back(static_cast<std::int32_t>(t * t % 50));
  k->embed(stream, room(tokens, d), view(w, d), indices.data());
  k->embed_backward(stream, room(vocabulary, d), view(dy, d), indices.data(), Write::replace);

  ExactSum loss;
  std::int64_t valid = 0;
  Floats logits(static_cast<std::size_t>(head_chunk * vocabulary));
  k->head_loss(stream, {view(x, d), view(w, d), indices.data(), view(logits, vocabulary), room(tokens, d),
                        room(vocabulary, d), &loss, &valid});
  results.push_back({});
  for (const auto word : loss.words())
    for (int part = 0; part < 4; ++part)
      results.back().push_back(static_cast<float>(word >> 16 * part & 0xffff));
  return results;
}

TEST(Bits, DoNotDependOnTheNumberOfThreads) {
  const auto one = all_kernels(1);
  for (const int threads : {2, 3, 5}) {
    const auto more = all_kernels(threads);
    ASSERT_EQ(more.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(more[i].size(), one[i].size());
      EXPECT_EQ(std::memcmp(more[i].data(), one[i].data(), one[i].size() * sizeof(float)), 0)
          << "result " << i << ", " << threads << " threads";
      for (const float x : one[i]) ASSERT_FALSE(std::isnan(x)) << "result " << i;
    }
  }
}

TEST(Bits, HaveAnIdentityThatDoesNotDependOnThreads) {
  EXPECT_EQ(make_cpu_kernels(1)->identity(), make_cpu_kernels(2)->identity());
  EXPECT_EQ(make_cpu_kernels()->identity().find("cpu fp32 1, OpenBLAS 0."), 0u)
      << make_cpu_kernels()->identity();
}

TEST(Bits, PointwiseKernelsDoNotDependOnShiftsAndCuts) {
  const auto k = make_cpu_kernels(2);
  tensor::InlineStream stream;
  const std::int64_t tokens = 37, f = 93;
  const Array source = random_array(tokens, 2 * f, 5, 3.0);
  const Floats x = floats(source), dy = floats(random_array(tokens, f, 6));
  Floats out(dy.size()), dx(x.size());
  k->swiglu(stream, view(out, f), view(x, 2 * f));
  k->swiglu_backward(stream, view(dx, 2 * f), view(dy, f), view(x, 2 * f));
  for (std::int64_t shift = 0; shift < 5; ++shift)
    for (const auto& [first, width] :
         {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 15}, {17, 31}, {5, 64}, {92, 1}}) {
      // The same columns alone, starting at another address.
      Floats gate_up(static_cast<std::size_t>(shift + tokens * 2 * width)),
          d_out(static_cast<std::size_t>(shift + tokens * width));
      Floats got(d_out.size()), d_got(gate_up.size());
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t c = 0; c < width; ++c) {
          gate_up[static_cast<std::size_t>(shift + t * 2 * width + c)] =
              x[static_cast<std::size_t>(t * 2 * f + first + c)];
          gate_up[static_cast<std::size_t>(shift + t * 2 * width + width + c)] =
              x[static_cast<std::size_t>(t * 2 * f + f + first + c)];
          d_out[static_cast<std::size_t>(shift + t * width + c)] =
              dy[static_cast<std::size_t>(t * f + first + c)];
        }
      const ConstMat in = tensor::dense<const float>(gate_up.data() + shift, tokens, 2 * width);
      k->swiglu(stream, tensor::dense(got.data() + shift, tokens, width), in);
      k->swiglu_backward(stream, tensor::dense(d_got.data() + shift, tokens, 2 * width),
                         tensor::dense<const float>(d_out.data() + shift, tokens, width), in);
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t c = 0; c < width; ++c) {
          ASSERT_EQ(got[static_cast<std::size_t>(shift + t * width + c)],
                    out[static_cast<std::size_t>(t * f + first + c)]);
          ASSERT_EQ(d_got[static_cast<std::size_t>(shift + t * 2 * width + c)],
                    dx[static_cast<std::size_t>(t * 2 * f + first + c)]);
          ASSERT_EQ(d_got[static_cast<std::size_t>(shift + t * 2 * width + width + c)],
                    dx[static_cast<std::size_t>(t * 2 * f + f + first + c)]);
        }
    }
}

TEST(Bits, RowKernelsDoNotDependOnTheRowsBesideThem) {
  const auto k = make_cpu_kernels(2);
  tensor::InlineStream stream;
  const std::int64_t tokens = 50, d = 67;
  const Floats x = floats(random_array(tokens, d, 1)), gain = floats(random_array(1, d, 3));
  Floats out(x.size()), rms(50);
  k->norm(stream, {view(x, d), {}, {}, view(out, d), gain.data(), rms.data(), 1e-5f});
  for (std::int64_t t = 0; t < tokens; ++t) {
    Floats one(static_cast<std::size_t>(d) + 3);
    float r = 0;
    const std::int64_t shift = t % 4;
    k->norm(
        stream,
        {view(x, d).rows_at(t, 1), {}, {}, tensor::dense(one.data() + shift, 1, d), gain.data(), &r, 1e-5f});
    ASSERT_EQ(r, rms[static_cast<std::size_t>(t)]);
    ASSERT_EQ(
        std::memcmp(one.data() + shift, out.data() + t * d, static_cast<std::size_t>(d) * sizeof(float)), 0);
  }
}

/// The test is compiled for the plainest vectors, the kernels for the machine's.
TEST(Bits, AreThoseOfTheNarrowestVectors) {
  const auto k = make_cpu_kernels(1);
  tensor::InlineStream stream;
  const std::int64_t n = 1037;
  const Floats x = floats(random_array(1, 2 * n, 1, 4.0)), gain = floats(random_array(1, n, 3));
  Floats activated(static_cast<std::size_t>(n)), normed(activated.size());
  float r = 0;
  k->swiglu(stream, view(activated, n), view(x, 2 * n));
  k->norm(stream, {tensor::dense(x.data(), 1, n), {}, {}, view(normed, n), gain.data(), &r, 1e-5f});
  EXPECT_EQ(r, 1.0f / std::sqrt(dot(x.data(), x.data(), n) / static_cast<float>(n) + 1e-5f));
  for (std::size_t i = 0; i < activated.size(); ++i) {
    const float sigmoid = 1.0f / (1.0f + exponential(-x[i]));
    ASSERT_EQ(activated[i], x[i] * sigmoid * x[i + static_cast<std::size_t>(n)]);
    ASSERT_EQ(normed[i], x[i] * r * gain[i]);
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
