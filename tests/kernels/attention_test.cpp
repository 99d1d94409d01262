// Attention, forward and backward, in both types: against the fp64 reference, and what its masks promise.
#include "src/kernels/bf16_amx.hpp"
#include "src/kernels/cpu_attention_rows.hpp"
#include "tests/kernels/amx_emulation.hpp"
#include "tests/kernels/attention_fixture.hpp"

namespace holdfast::testing {
namespace {

Array rounded_seed(const Case& c, DType type) {
  Array seed = c.seed;
  if (type == DType::bf16)
    for (double& x : seed.v) x = to_float(tensor::to_bf16(static_cast<float>(x)));
  return seed;
}

void check(DType type, const Shape& s, const reference::Places& places, double scale = 1.0) {
  Case c = reference_of(s, places, scale);
  const Array dy = rounded_seed(c, type);
  reference::Tape tape;
  const int x = tape.input(c.inputs[0]);
  tape.backward(c.f(tape, {x}), dy);
  const Result got = run(type, s, c.inputs[0], dy, start_of(places));
  EXPECT_LT(distance(got.out.all(), c.out.v), tolerance(type)) << "sequence " << s.sequence;
  EXPECT_LT(distance(got.d_qkv.all(), tape.gradient(x).v), tolerance(type)) << "sequence " << s.sequence;
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionIn, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(AttentionIn, AgreesWithTheReference) {
  for (const Shape& s : {Shape{2, 1, 2, 1, 4}, Shape{2, 5, 2, 2, 2}, Shape{2, 131, 6, 2, 10},
                         Shape{1, 96, 4, 1, 16}, Shape{1, 97, 2, 2, 64}, Shape{1, 300, 2, 1, 128},
                         Shape{1, 65, 1, 1, 256}, Shape{3, 64, 3, 3, 34}, Shape{1, 551, 1, 1, 64}})
    check(GetParam(), s, no_documents(s));
}

TEST_P(AttentionIn, StaysInsideDocuments) {
  for (const auto& [s, length] : {std::pair{Shape{2, 6, 4, 2, 2}, 2},
                                  {Shape{3, 150, 4, 2, 8}, 51},
                                  {Shape{1, 400, 2, 1, 64}, 130},
                                  {Shape{2, 210, 2, 1, 16}, 1}})
    check(GetParam(), s, documents_of(s, length));
}

TEST_P(AttentionIn, IsExactForLargeScores) {
  const Shape s{1, 200, 2, 2, 16};
  check(GetParam(), s, no_documents(s), 4.0);
}

TEST_P(AttentionIn, KeepsTheLogOfTheSumOfExponentials) {
  const Shape s{1, 130, 2, 1, 16};
  const Array x = random_bf16(s.tokens(), s.packed(), 1);
  const Result got = run(GetParam(), s, x, random_bf16(s.tokens(), s.width(), 2));
  for (int h = 0; h < s.heads; ++h)
    for (int i = 0; i < s.sequence; ++i) {
      double sum = 0;
      for (int j = 0; j <= i; ++j) {
        double score = 0;
        for (int c = 0; c < s.head_size; ++c) score += x.at(i, h * 16 + c) * x.at(j, s.width() + c);
        sum += std::exp(score / 4);
      }
      ASSERT_NEAR(got.log_sum[h * s.sequence + i], std::log(sum), 2e-5);
    }
}

/// Documents computed one by one, each as a row of its own.
void check_documents(DType type, const Shape& s, std::int64_t length, bool bits) {
  const Array x = random_bf16(s.tokens(), s.packed(), 1), dy = random_bf16(s.tokens(), s.width(), 2);
  const auto places = documents_of(s, length);
  const Result together = run(type, s, x, dy, start_of(places));
  for (std::int64_t first = 0; first < s.sequence; first += length) {
    const std::int64_t count = std::min(length, s.sequence - first);
    Shape one = s;
    one.sequence = static_cast<int>(count);
    const Result apart = run(type, one, rows_of_array(x, first, count), rows_of_array(dy, first, count));
    const Floats out = together.out.part(first, count, 0, s.width()),
                 d_qkv = together.d_qkv.part(first, count, 0, s.packed());
    if (bits) {
      EXPECT_TRUE(same_bits(out, apart.out.all())) << first;
      EXPECT_TRUE(same_bits(d_qkv, apart.d_qkv.all())) << first;
    } else {
      EXPECT_LT(distance(out, apart.out.all()), tolerance(type)) << first;
      EXPECT_LT(distance(d_qkv, apart.d_qkv.all()), tolerance(type)) << first;
    }
  }
}

TEST_P(AttentionIn, AMaskedDocumentIsADocumentApart) {
  check_documents(GetParam(), {1, 300, 4, 2, 32}, 43, false);
  check_documents(GetParam(), {1, 300, 4, 2, 32}, 101, false);
}

/// Where a document begins with a packed panel, its sums are the same sums.
TEST(Attention, AMaskedDocumentThatBeginsWithAPanelHasTheBitsOfADocumentApart) {
  check_documents(DType::bf16, {1, 3 * 96 + 40, 4, 2, 32}, 96, true);
  check_documents(DType::bf16, {1, 400, 2, 2, 64}, 32, true);
}

TEST_P(AttentionIn, GroupedQueriesAreRepeatedKeys) {
  const Shape grouped{1, 200, 6, 2, 16}, repeated{1, 200, 6, 6, 16};
  const std::int64_t d = 16;
  const Array x = random_bf16(200, grouped.packed(), 1), dy = random_bf16(200, grouped.width(), 2);
  Array more(200, repeated.packed());
  for (std::int64_t t = 0; t < 200; ++t)
    for (std::int64_t c = 0; c < repeated.packed(); ++c) {
      const std::int64_t head = c / d % 6, part = c / d / 6;
      more.at(t, c) = x.at(t, part == 0 ? c : (6 + (part - 1) * 2 + head / 3) * d + c % d);
    }
  const Result few = run(GetParam(), grouped, x, dy), many = run(GetParam(), repeated, more, dy);
  EXPECT_TRUE(same_bits(few.out.all(), many.out.all()));
  EXPECT_TRUE(same_bits(few.d_qkv.part(0, 200, 0, 6 * d), many.d_qkv.part(0, 200, 0, 6 * d)));
  for (std::int64_t part = 0; part < 2; ++part)
    for (std::int64_t kv = 0; kv < 2; ++kv) {
      Floats sum(200 * d);
      for (std::int64_t h = kv * 3; h < kv * 3 + 3; ++h) {
        const Floats one = many.d_qkv.part(0, 200, (6 + part * 6 + h) * d, d);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
      }
      EXPECT_LT(distance(few.d_qkv.part(0, 200, (6 + part * 2 + kv) * d, d), sum), tolerance(GetParam()));
    }
}

TEST_P(AttentionIn, ANotANumberStaysInItsRow) {
  const Shape s{3, 150, 2, 1, 32};
  Array x = random_bf16(s.tokens(), s.packed(), 1);
  const Array dy = random_bf16(s.tokens(), s.width(), 2);
  const Result clean = run(GetParam(), s, x, dy);
  for (const std::int64_t column :
       {std::int64_t{3}, s.width() + 3, s.width() + 32 + 3}) {  // query, key, value
    Array broken = x;
    broken.at(150 + 70, column) = NAN;
    const Result got = run(GetParam(), s, broken, dy);
    for (const std::int64_t row : {0, 2}) {
      EXPECT_TRUE(same_bits(got.out.part(row * 150, 150, 0, s.width()),
                            clean.out.part(row * 150, 150, 0, s.width())));
      EXPECT_TRUE(same_bits(got.d_qkv.part(row * 150, 150, 0, s.packed()),
                            clean.d_qkv.part(row * 150, 150, 0, s.packed())));
    }
    // The token that looks at it, and nothing hides it from the gradients.
    for (std::int64_t c = 0; c < (column == 3 ? 32 : 64); ++c)
      if (column < s.width() + 32 || c % 32 == 3) {
        EXPECT_TRUE(std::isnan(got.out.at(150 + 70, c))) << c;
      }
    EXPECT_TRUE(std::isnan(got.d_qkv.at(150 + 70, 0)));
  }
}

TEST(Attention, EveryPathOfTheProductsAgreesWithTheReference) {
  const Shape s{1, 230, 2, 1, 64};
  const auto places = documents_of(s, 150);
  const Case c = reference_of(s, places);
  const Array dy = rounded_seed(c, DType::bf16);
  reference::Tape tape;
  const int x = tape.input(c.inputs[0]);
  tape.backward(c.f(tape, {x}), dy);
  std::vector<const Bf16Blocks*> paths{bf16_blocks(Bf16Path::portable)};
#if defined(__x86_64__)
  static const AmxBlocks<EmulatedTiles> emulated;
  if (bf16_blocks(Bf16Path::avx512) != nullptr)
    paths.insert(paths.end(), {bf16_blocks(Bf16Path::avx512), &emulated});
  if (bf16_blocks(Bf16Path::amx) != nullptr) paths.push_back(bf16_blocks(Bf16Path::amx));
#endif
  for (const Bf16Blocks* blocks : paths) {
    const Result got = run_path(*blocks, Schedule::heads, s, c.inputs[0], dy, start_of(places));
    EXPECT_LT(distance(got.out.all(), c.out.v), tolerance(DType::bf16)) << blocks->name();
    EXPECT_LT(distance(got.d_qkv.all(), tape.gradient(x).v), tolerance(DType::bf16)) << blocks->name();
    EXPECT_TRUE(same_bits(got, run_path(*blocks, Schedule::blocks, s, c.inputs[0], dy, start_of(places))))
        << blocks->name();
  }
}

TEST(Attention, PowersAreCloseAndMaskedOnesAreZero) {
  Floats x;
  for (int i = 0; i < 16 * 100000; ++i) x.push_back(-130.0f * static_cast<float>(i) / 1.6e6f);
  x[5] = -INFINITY;
  std::vector<Bf16> p(x.size());
  RowLanes sums;
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); i += 16) {
    fill(sums, 0);
    plain_row_math().powers(p.data() + i, sums, x.data() + i, 16, 1.0f, 0.0f);
    for (std::size_t l = 0; l < 16; ++l) {
      if (x[i + l] < -126.0f) {
        ASSERT_EQ(sums.lane[l], 0.0f);
        continue;
      }
      const double want = std::exp2(static_cast<double>(x[i + l]));
      worst = std::fmax(worst, std::fabs(sums.lane[l] - want) / want);
      ASSERT_EQ(p[i + l], tensor::to_bf16(sums.lane[l]));
    }
  }
  EXPECT_LT(worst, 4e-6);
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const auto k = make_cpu_kernels(1);
  tensor::InlineStream stream;
  const Shape s{1, 8, 2, 1, 4};
  Call call(DType::bf16, s, random_bf16(8, s.packed(), 1), random_bf16(8, s.width(), 2), nullptr, false);
  call.allocate(k->workspace(call.a));
  Attention a = call.a;
  a.heads = 3;
  EXPECT_THROW(k->attention(stream, a), std::logic_error);
  a = call.a;
  a.sequence = 3;
  EXPECT_THROW(k->attention(stream, a), std::logic_error);
  Matrix other(DType::fp32, 8, s.width());
  a = call.a;
  a.out = other.view();
  EXPECT_THROW(k->attention(stream, a), std::logic_error);
  AttentionGradient g = call.gradient();
  g.d_qkv = g.d_qkv.rows_at(0, 4);
  EXPECT_THROW(k->attention_backward(stream, call.a, g), std::logic_error);
}

}  // namespace
}  // namespace holdfast::testing
