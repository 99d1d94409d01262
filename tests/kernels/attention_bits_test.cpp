// The bits of attention do not depend on threads, schedules, addresses, vectors, or what lies beside a row or
// a head.
#include "src/kernels/cpu_attention_rows.hpp"
#include "tests/kernels/attention_fixture.hpp"

namespace holdfast::testing {
namespace {

class AttentionBitsIn : public AttentionIn {};
INSTANTIATE_TEST_SUITE_P(Types, AttentionBitsIn, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(AttentionBitsIn, HasTheSameBitsForEveryNumberOfThreads) {
  // One key/value head and five: few and many tasks; 550: more blocks than threads, the last one short.
  for (const Shape& s : {Shape{1, 550, 3, 1, 32}, Shape{1, 230, 10, 5, 18}, Shape{2, 97, 4, 2, 64}})
    for (const bool documents : {false, true}) {
      const Array x = random_bf16(s.tokens(), s.packed(), 1), dy = random_bf16(s.tokens(), s.width(), 2);
      const auto places = documents ? documents_of(s, 77) : no_documents(s);
      const Result one = run(GetParam(), s, x, dy, start_of(places), 1);
      for (const float value : one.d_qkv.all()) ASSERT_FALSE(std::isnan(value));
      for (const int threads : {2, 3, 7})
        EXPECT_TRUE(same_bits(run(GetParam(), s, x, dy, start_of(places), threads), one)) << threads;
    }
}

TEST_P(AttentionBitsIn, HasTheSameBitsAtEveryAddressAndStride) {
  const Shape s{1, 201, 4, 2, 22};
  const Array x = random_bf16(s.tokens(), s.packed(), 1), dy = random_bf16(s.tokens(), s.width(), 2);
  EXPECT_TRUE(same_bits(run(GetParam(), s, x, dy, nullptr, 2, true), run(GetParam(), s, x, dy)));
}

TEST_P(AttentionBitsIn, ARowDoesNotDependOnTheOthersOfItsBatch) {
  const Shape s{3, 129, 4, 2, 32}, alone{1, 129, 4, 2, 32};
  const Array x = random_bf16(s.tokens(), s.packed(), 1), dy = random_bf16(s.tokens(), s.width(), 2);
  const Result all = run(GetParam(), s, x, dy);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const Result one =
        run(GetParam(), alone, rows_of_array(x, row * 129, 129), rows_of_array(dy, row * 129, 129));
    EXPECT_TRUE(same_bits(all.out.part(row * 129, 129, 0, s.width()), one.out.all())) << row;
    EXPECT_TRUE(same_bits(all.d_qkv.part(row * 129, 129, 0, s.packed()), one.d_qkv.all())) << row;
  }
}

TEST_P(AttentionBitsIn, AHeadDoesNotDependOnItsPlace) {
  const Shape s{1, 129, 3, 3, 20};
  const std::int64_t d = 20;
  const Array x = random_bf16(s.tokens(), s.packed(), 1), dy = random_bf16(s.tokens(), s.width(), 2);
  Array moved_x = x, moved_dy = dy;  // head h becomes head h + 1
  for (std::int64_t t = 0; t < s.tokens(); ++t)
    for (std::int64_t h = 0; h < 3; ++h)
      for (std::int64_t c = 0; c < d; ++c) {
        for (std::int64_t part = 0; part < 3; ++part)
          moved_x.at(t, (part * 3 + (h + 1) % 3) * d + c) = x.at(t, (part * 3 + h) * d + c);
        moved_dy.at(t, (h + 1) % 3 * d + c) = dy.at(t, h * d + c);
      }
  const Result at = run(GetParam(), s, x, dy), moved = run(GetParam(), s, moved_x, moved_dy);
  for (std::int64_t h = 0; h < 3; ++h) {
    EXPECT_TRUE(same_bits(at.out.part(0, 129, h * d, d), moved.out.part(0, 129, (h + 1) % 3 * d, d)));
    for (std::int64_t part = 0; part < 3; ++part)
      EXPECT_TRUE(same_bits(at.d_qkv.part(0, 129, (part * 3 + h) * d, d),
                            moved.d_qkv.part(0, 129, (part * 3 + (h + 1) % 3) * d, d)));
  }
}

TEST(AttentionBits, SchedulesOfTheBackwardPassHaveTheSameBits) {
  for (const Shape& s : {Shape{2, 330, 4, 2, 24}, Shape{1, 97, 3, 1, 64}})
    for (const std::int64_t length : {std::int64_t{1000}, std::int64_t{60}, std::int64_t{150}}) {
      const Array x = random_bf16(s.tokens(), s.packed(), 1), dy = random_bf16(s.tokens(), s.width(), 2);
      const auto places = documents_of(s, length);
      EXPECT_TRUE(same_bits(run_path(bf16_blocks(), Schedule::heads, s, x, dy, start_of(places)),
                            run_path(bf16_blocks(), Schedule::blocks, s, x, dy, start_of(places))));
    }
}

TEST(AttentionBits, ChoosesTheScheduleThatEndsEarlier) {
  const auto chosen = [](int kv_heads, int threads) {
    Attention a;
    a.qkv = {nullptr, DType::bf16, 64, 64, 64};
    a.heads = 32;
    a.kv_heads = kv_heads;
    a.sequence = 64;
    return Bf16AttentionBackward::quicker(a, threads);
  };
  EXPECT_EQ(chosen(1, 1), Schedule::heads);
  EXPECT_EQ(chosen(1, 2), Schedule::blocks);
  EXPECT_EQ(chosen(2, 2), Schedule::heads);
  EXPECT_EQ(chosen(3, 2), Schedule::heads);   // 2 turns of 5 products against 3 * 7 / 2
  EXPECT_EQ(chosen(5, 4), Schedule::blocks);  // 2 turns of 5 against 5 * 7 / 4
  EXPECT_EQ(chosen(8, 8), Schedule::heads);
  EXPECT_EQ(chosen(8, 64), Schedule::blocks);
}

TEST(AttentionBits, RowsHaveTheSameBitsPlainAndWithAvx512) {
  if (avx512_row_math() == nullptr) GTEST_SKIP() << "this processor does not have the instructions";
  const RowMath &plain = plain_row_math(), &avx512 = *avx512_row_math();
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 40);
  Floats scores, dp;
  for (const float x : {INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -3e38f, NAN, -NAN})
    scores.push_back(x), dp.push_back(1 / x);
  while (scores.size() < 16 * 500) scores.push_back(normal(generator)), dp.push_back(normal(generator));
  for (int i = 100; i < 400; ++i) dp[i] *= 1e-37f;  // subnormal gradients
  const auto count = static_cast<std::int64_t>(scores.size());
  for (const std::int64_t first : {0, 16}) {  // with and without what is not a number
    RowLanes largest[2], sums[2];
    std::vector<Bf16> p[2], again[2], ds[2];
    for (const int i : {0, 1}) {
      const RowMath& math = i == 0 ? plain : avx512;
      for (auto* row : {&p[i], &again[i], &ds[i]}) row->resize(scores.size());
      fill(largest[i], -INFINITY), fill(sums[i], 0);
      math.largest(largest[i], scores.data() + first, count - first);
      const float top = kernels::largest(largest[0]) * 0.25f;
      math.powers(p[i].data(), sums[i], scores.data() + first, count - first, 0.25f, top);
      math.power_gradients(again[i].data(), ds[i].data(), scores.data() + first, dp.data() + first,
                           count - first, 0.25f, top, 0.5e-37f);
    }
    EXPECT_EQ(std::memcmp(&largest[0], &largest[1], sizeof(RowLanes)), 0);
    EXPECT_EQ(std::memcmp(&sums[0], &sums[1], sizeof(RowLanes)), 0);
    EXPECT_EQ(p[0], p[1]);
    EXPECT_EQ(again[0], again[1]);
    EXPECT_EQ(p[0], again[0]);
    EXPECT_EQ(ds[0], ds[1]);
  }
}

}  // namespace
}  // namespace holdfast::testing
