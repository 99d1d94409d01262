// Matrix products and the bf16 blocks they are made of: values against fp64, bits against their definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>

#include "src/base/as_size.hpp"
#include "src/kernels/bf16_amx.hpp"
#include "src/kernels/bf16_matmul.hpp"
#include "tests/kernels/amx_emulation.hpp"
#include "tests/kernels/operands.hpp"

namespace holdfast::kernels {
namespace {

using tensor::to_bf16;
using tensor::to_float;
using testing::canary;
using testing::Framed;
using testing::Operands;

/// The paths that can run here; AMX in emulation, which needs AVX-512 for packing only.
std::vector<const Bf16Blocks*> all_paths() {
  std::vector<const Bf16Blocks*> paths{bf16_blocks(Bf16Path::portable)};
  for (const Bf16Path path : {Bf16Path::avx512, Bf16Path::amx})
    if (const auto* blocks = bf16_blocks(path)) paths.push_back(blocks);
#if defined(__x86_64__)
  static const AmxBlocks<testing::EmulatedTiles> emulated;
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) paths.push_back(&emulated);
#endif
  return paths;
}

/// Products in fp64, and what rounding their terms to fp32 can change.
struct Reference {
  explicit Reference(const Operands& o) {
    for (std::int64_t r = 0; r < o.m; ++r)
      for (std::int64_t c = 0; c < o.n; ++c) value.push_back(o.product(r, c)), bound.push_back(o.bound(r, c));
  }
  std::vector<double> value, bound;
};

template <class T>
void check_values(const Operands& o, const Reference& reference, Kernels& kernels, bool ta, bool tb,
                  Write write, bool with_bias) {
  const T before = [] {
    if constexpr (std::is_same_v<T, float>)
      return 3.25f;
    else
      return to_bf16(3.25f);
  }();
  Framed<T> y(o.m, o.n, before);
  o.multiply(kernels, y.mat(), ta, tb, write, with_bias);
  for (std::int64_t r = 0; r < o.m; ++r) {
    for (std::int64_t c = 0; c < o.n; ++c) {
      const auto i = as_size(r * o.n + c);
      double want = reference.value[i], allowed = reference.bound[i] + 1e-30;
      const auto step = [&](double term) { want += term, allowed += std::fabs(want) * std::ldexp(1.0, -23); };
      if (with_bias) step(to_float(o.bias.at(0, c)));
      if (write == Write::add) step(3.25);
      if (std::is_same_v<T, Bf16>) allowed += std::fabs(want) * std::ldexp(1.0, -8);
      ASSERT_NEAR(to_float(y.at(r, c)), want, allowed) << "row " << r << ", column " << c;
    }
    for (std::int64_t c = o.n; c < y.stride; ++c) ASSERT_EQ(y.at(r, c), before) << "beside row " << r;
  }
}

TEST(Matmul, MatchesFp64InAllForms) {
  for (const auto* path : all_paths())
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {3, 33, 5},
                                  {31, 65, 33},
                                  {33, 31, 257},
                                  {65, 257, 31},
                                  {257, 3, 64},
                                  {100, 130, 2}}) {
      const Operands o(m, n, k);
      const Reference reference(o);
      for (const int threads : {1, 2}) {
        const auto kernels = make_cpu_kernels(threads, *path);
        for (const bool ta : {false, true})
          for (const bool tb : {false, true})
            for (const bool with_bias : {false, true}) {
              SCOPED_TRACE(path->name() + " " + std::to_string(m) + " " + std::to_string(n) + " " +
                           std::to_string(k) + (ta ? " T" : " N") + (tb ? "T" : "N") +
                           (with_bias ? " bias" : ""));
              check_values<Bf16>(o, reference, *kernels, ta, tb, Write::replace, with_bias);
              check_values<float>(o, reference, *kernels, ta, tb, Write::replace, with_bias);
              check_values<float>(o, reference, *kernels, ta, tb, Write::add, with_bias);
            }
      }
    }
}

TEST(Matmul, OfNothingIsTheBiasOrZero) {
  for (const auto* path : all_paths()) {
    const auto kernels = make_cpu_kernels(2, *path);
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{7, 40, 0}, {0, 40, 3}, {4, 0, 3}}) {
      const Operands o(m, n, k);
      const Reference reference(o);
      for (const bool with_bias : {false, true}) {
        check_values<Bf16>(o, reference, *kernels, false, true, Write::replace, with_bias);
        check_values<float>(o, reference, *kernels, true, false, Write::add, with_bias);
      }
    }
  }
}

/// One element by the order that bf16_block.hpp gives.
float defined_sum(Bf16Path path, std::span<const Bf16> a, std::span<const Bf16> b) {
  const auto left = [&](std::size_t i) { return i < a.size() ? to_float(a[i]) : 0.0f; };
  const auto right = [&](std::size_t i) { return i < b.size() ? to_float(b[i]) : 0.0f; };
  const auto added = [&](float sum, std::size_t i) { return std::fma(left(i), right(i), sum); };
  float sum = 0;
  if (path == Bf16Path::portable)
    for (std::size_t i = 0; i < a.size(); ++i) sum = added(sum, i);
  if (path == Bf16Path::avx512)
    for (std::size_t i = 0; i < a.size(); i += 2) sum = added(added(sum, i + 1), i);
  if (path == Bf16Path::amx)
    for (std::size_t i = 0; i < a.size(); i += 32) {
      float even = 0, odd = 0;
      for (std::size_t j = i; j < i + 32; j += 2) {
        even = added(even, j);
        odd = added(odd, j + 1);
      }
      sum = sum + (even + odd);
    }
  return sum;
}

TEST(Matmul, HasTheBitsOfTheDefinedOrderWhereverItIsCut) {
  for (const auto* path : all_paths())
    for (const std::int64_t k : {7, 96, 1001}) {
      const Operands o(70, 101, k);
      std::vector<float> want;
      for (std::int64_t r = 0; r < o.m; ++r)
        for (std::int64_t c = 0; c < o.n; ++c)
          want.push_back(defined_sum(path->path(), {&o.a.memory[o.a.front + r * o.a.stride], as_size(k)},
                                     {o.b_transposed.data() + c * o.b_transposed.stride, as_size(k)}));
      for (const int threads : {1, 2, 5}) {
        const auto kernels = make_cpu_kernels(threads, *path);
        for (const bool ta : {false, true})
          for (const bool tb : {false, true})
            for (const auto& [row, rows, col, cols] : {std::array<std::int64_t, 4>{0, 70, 0, 101},
                                                       {13, 1, 7, 90},
                                                       {40, 30, 100, 1},
                                                       {1, 33, 35, 64}}) {
              SCOPED_TRACE(path->name() + " k " + std::to_string(k) + " threads " + std::to_string(threads));
              Framed<float> y(rows, cols, 0.0f);
              tensor::InlineStream stream;
              kernels->matmul(stream, y.mat(),
                              ta ? o.a_transposed.mat().cols_at(row, rows) : o.a.mat().rows_at(row, rows), ta,
                              tb ? o.b_transposed.mat().rows_at(col, cols) : o.b.mat().cols_at(col, cols), tb,
                              Write::replace);
              for (std::int64_t r = 0; r < rows; ++r)
                for (std::int64_t c = 0; c < cols; ++c)
                  ASSERT_EQ(y.at(r, c), want[(row + r) * o.n + col + c]);
            }
      }
    }
}

/// More than one step over rows, over k, or both: bits of the same product in one piece.
TEST(Matmul, InStepsHasTheBitsOfOnePiece) {
  for (const auto* path : all_paths())
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{45, 70, 9001}, {1100, 33, 4096}, {600, 2000, 4100}}) {
      if (path->path() == Bf16Path::amx && m * n > 10000) continue;  // the emulation is slow
      SCOPED_TRACE(path->name() + " " + std::to_string(m) + " " + std::to_string(n) + " " +
                   std::to_string(k));
      const Operands o(m, n, k);
      std::vector<float> whole(m * n);
      {
        const auto memory = [](std::int64_t bytes) {
          return std::unique_ptr<std::byte, decltype(&std::free)>(
              static_cast<std::byte*>(std::aligned_alloc(64, as_size(bytes))), &std::free);
        };
        const auto left = memory(path->left_bytes(m, k)), right = memory(path->right_bytes(k, n));
        path->product(whole.data(), n, path->pack_left(left.get(), o.a.data(), o.a.stride, false, m, k),
                      path->pack_right(right.get(), o.b.data(), o.b.stride, false, k, n), m, n, k, false);
      }
      const auto kernels = make_cpu_kernels(2, *path);
      Framed<float> replaced(m, n, 1.5f), added(m, n, 1.5f);
      Framed<Bf16> rounded(m, n, canary);
      o.multiply(*kernels, replaced.mat(), true, true);
      o.multiply(*kernels, added.mat(), true, false, Write::add);
      o.multiply(*kernels, rounded.mat(), false, true, Write::replace, true);
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t c = 0; c < n; ++c) {
          const float sum = whole[r * n + c];
          ASSERT_EQ(replaced.at(r, c), sum);
          ASSERT_EQ(added.at(r, c), 1.5f + sum);
          ASSERT_EQ(rounded.at(r, c), to_bf16(sum + to_float(o.bias.at(0, c))));
        }
    }
}

TEST(Matmul, KeepsNanAndInfinityInTheirRowsAndColumns) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto* path : all_paths()) {
    Operands o(40, 50, 77);  // odd: what pads k must not meet the last element's infinity
    o.a.at(3, 5) = to_bf16(NAN);
    o.b.at(76, 9) = to_bf16(infinity);
    o.a.at(20, 76) = to_bf16(0.0f);  // times infinity: NaN
    o.a.at(30, 76) = to_bf16(-2.0f);
    o.transpose();
    const auto kernels = make_cpu_kernels(2, *path);
    for (const bool transposed : {false, true}) {
      Framed<Bf16> y(o.m, o.n, canary);
      o.multiply(*kernels, y.mat(), transposed, transposed);
      for (std::int64_t r = 0; r < o.m; ++r)
        for (std::int64_t c = 0; c < o.n; ++c) {
          const float got = to_float(y.at(r, c));
          if (r == 3 || (r == 20 && c == 9))
            ASSERT_TRUE(std::isnan(got)) << r << " " << c;
          else if (c == 9)
            ASSERT_TRUE(std::isinf(got)) << r;
          else
            ASSERT_TRUE(std::isfinite(got)) << r << " " << c;
        }
      EXPECT_EQ(to_float(y.at(30, 9)), -infinity);
    }
  }
}

TEST(Matmul, TreatsSubnormalNumbersAsThePathSays) {
  const float smallest_normal = std::numeric_limits<float>::min();
  for (const auto* path : all_paths()) {
    const bool keeps = path->path() == Bf16Path::portable;
    Operands o(2, 2, 2);
    for (auto* m : {&o.a, &o.b})
      for (std::int64_t i = 0; i < 4; ++i) m->at(i / 2, i % 2) = to_bf16(0.0f);
    o.a.at(0, 0) = to_bf16(smallest_normal / 2), o.b.at(0, 0) = to_bf16(4.0f);  // a subnormal operand
    o.a.at(1, 1) = to_bf16(smallest_normal), o.b.at(1, 1) = to_bf16(0.5f);      // a subnormal sum
    o.transpose();
    Framed<float> y(2, 2, 1.0f);
    o.multiply(*make_cpu_kernels(1, *path), y.mat(), false, false);
    EXPECT_EQ(y.at(0, 0), keeps ? 2 * smallest_normal : 0.0f) << path->name();
    EXPECT_EQ(y.at(1, 1), keeps ? smallest_normal / 2 : 0.0f) << path->name();
  }
}

TEST(Matmul, OfFp32HasBiasAndAddition) {
  const std::int64_t m = 300, n = 270, k = 65;
  const Operands o(m, n, k);
  const auto widened = [](const Framed<Bf16>& x) {
    Framed<float> wide(x.rows, x.cols, NAN);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < x.cols; ++c) wide.at(r, c) = to_float(x.at(r, c));
    return wide;
  };
  const Framed<float> a = widened(o.a), b = widened(o.b), bias = widened(o.bias);
  const auto kernels = make_cpu_kernels(2);
  tensor::InlineStream stream;
  for (const Write write : {Write::replace, Write::add}) {
    Framed<float> plain(m, n, 2.0f), biased(m, n, 2.0f), product(m, n, 2.0f);
    kernels->matmul(stream, product.mat(), a.mat(), false, b.mat(), false, Write::replace);
    kernels->matmul(stream, plain.mat(), a.mat(), false, b.mat(), false, write);
    kernels->matmul(stream, biased.mat(), a.mat(), false, b.mat(), false, write, bias.mat());
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        const float sum = product.at(r, c), with_bias = sum + bias.at(0, c);
        ASSERT_NEAR(sum, o.product(r, c), o.bound(r, c));
        ASSERT_EQ(plain.at(r, c), write == Write::add ? 2.0f + sum : sum);
        ASSERT_EQ(biased.at(r, c), write == Write::add ? 2.0f + with_bias : with_bias);
      }
  }
}

TEST(Bf16Blocks, PartsOfPackedOperandsAreThoseOfTheOperands) {
  for (const auto* path : all_paths()) {
    const Operands o(100, 130, 150);
    const auto left_bytes = path->left_bytes(o.m, o.k), right_bytes = path->right_bytes(o.k, o.n);
    alignas(64) static std::byte left_memory[1 << 17], right_memory[1 << 17];
    ASSERT_LE(std::max(left_bytes, right_bytes), 1 << 17);
    const auto left =
        path->pack_left(left_memory, o.a_transposed.data(), o.a_transposed.stride, true, o.m, o.k);
    const auto right =
        path->pack_right(right_memory, o.b_transposed.data(), o.b_transposed.stride, true, o.k, o.n);
    const std::int64_t row = path->left_width(), col = 64, first_k = 64, k = 64;
    Framed<float> got(20, 50, 1.0f);
    path->product(got.mat().row<float>(0), got.stride, path->left_at(left, row, first_k),
                  path->right_at(right, first_k, col), 20, 50, k, false);
    for (std::int64_t r = 0; r < 20; ++r)
      for (std::int64_t c = 0; c < 50; ++c)
        ASSERT_EQ(
            got.at(r, c),
            defined_sum(path->path(), {o.a.data() + (row + r) * o.a.stride + first_k, as_size(k)},
                        {o.b_transposed.data() + (col + c) * o.b_transposed.stride + first_k, as_size(k)}))
            << path->name();
    // The rest of k on top of the first part is the whole sum.
    Framed<float> whole(o.m, o.n, 1.0f), parts(o.m, o.n, 1.0f);
    path->product(whole.mat().row<float>(0), whole.stride, left, right, o.m, o.n, o.k, false);
    path->product(parts.mat().row<float>(0), parts.stride, left, right, o.m, o.n, 96, false);
    path->product(parts.mat().row<float>(0), parts.stride, path->left_at(left, 0, 96),
                  path->right_at(right, 96, 0), o.m, o.n, o.k - 96, true);
    EXPECT_EQ(parts.memory, whole.memory) << path->name();
  }
}

TEST(Bf16Blocks, PathsHaveNamesAndOneIsChosen) {
  EXPECT_NE(bf16_blocks(Bf16Path::portable), nullptr);
  EXPECT_EQ(&bf16_blocks(), bf16_blocks(bf16_blocks().path()));
  for (const auto* path : all_paths()) {
    EXPECT_THAT(bf16_identity(*path), ::testing::HasSubstr(path->name()));
    EXPECT_THAT(make_cpu_kernels(1, *path)->identity(DType::bf16),
                ::testing::HasSubstr(bf16_identity(*path)));
    for (const auto* other : all_paths())
      EXPECT_EQ(bf16_identity(*path) == bf16_identity(*other), path->path() == other->path());
  }
}

}  // namespace
}  // namespace holdfast::kernels
