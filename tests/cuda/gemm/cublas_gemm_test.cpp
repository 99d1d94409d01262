// The library itself. On the simulator only its refusal can be seen.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "src/base/error.hpp"
#include "src/cuda/gemm/choices.hpp"
#include "src/cuda/gemm/product_plan.hpp"
#include "tests/cuda/gemm/gemm_on_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::GemmCase;
using test::GemmProblem;

class CublasGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (simulated()) GTEST_SKIP() << "needs a GPU";
  }
  static bool simulated() { return test::gpu().facts().name == "Simulated GPU"; }
  static bool has_fp8() { return test::gpu().facts().major * 10 + test::gpu().facts().minor >= 89; }
};

TEST(CublasWithoutGpu, SaysWhatIsMissing) {
  if (test::gpu().facts().name != "Simulated GPU") GTEST_SKIP() << "there is a GPU";
  try {
    const auto gemm = make_cublas_gemm(test::gpu(), true);
    GTEST_SKIP() << "the library starts: there is a GPU besides the simulated one";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.exit(), Exit::runtime);
    EXPECT_NE(text.find("cuBLASLt cannot start"), std::string::npos) << text;
    EXPECT_NE(text.find("CUBLAS_STATUS_NOT_INITIALIZED"), std::string::npos) << text;
    EXPECT_NE(text.find("driver"), std::string::npos) << text;
  }
}

TEST_F(CublasGemmTest, EveryFormOfProduct) {
  for (const bool deterministic : {true, false}) {
    const auto gemm = make_cublas_gemm(test::gpu(), deterministic);
    unsigned seed = 0;
    for (const GemmCase& what : test::gemm_cases()) {
      if (is_fp8(what.a) && !has_fp8()) continue;
      SCOPED_TRACE(what.name() + (deterministic ? "" : ", free"));
      try {
        EXPECT_EQ(test::wrong_with(*gemm, GemmProblem(what, ++seed, false), is_fp8(what.a) ? 64 : 4), "");
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();  // and what about the others?
      }
    }
  }
}

TEST_F(CublasGemmTest, ProductsOfNothing) {
  test::check_products_of_nothing(*make_cublas_gemm(test::gpu(), true));
}

TEST_F(CublasGemmTest, ChoicesGiveTheSameBitsInAnotherProcess) {
  // Large enough that several algorithms compete, small enough for the check.
  const GemmCase what{256, 192, 4096, DType::bf16, DType::bf16, DType::fp32, true, false, true};
  const GemmProblem problem(what, 1, false);
  const auto first = make_cublas_gemm(test::gpu(), true);
  first->note(problem.product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  const std::string text = first->choices("");
  EXPECT_GT(parse_choices(text).entries.begin()->second.microseconds, 0);
  first->use_choices(text);
  const auto second = make_cublas_gemm(test::gpu(), true);
  second->use_choices(text);
  const auto bits = test::result_of(*first, problem);
  EXPECT_EQ(problem.check(bits, 4), "");
  EXPECT_EQ(test::result_of(*second, problem), bits);
}

/// Whether a gradient may be added to in the product's own epilogue: with the algorithm of the product alone,
/// that must be the product and then one addition in fp32.
TEST_F(CublasGemmTest, AddingIsTheProductAndOneAdditionWithTheSameAlgorithm) {
  for (const auto& [m, n, k] : {std::tuple{256, 192, 4096}, {1024, 768, 2048}, {512, 4096, 512}}) {
    GemmCase what{m, n, k, DType::bf16, DType::bf16, DType::fp32, true, false, false};
    const GemmProblem alone(what, 5, false);
    what.add = true;
    const GemmProblem added(what, 5, false);
    ASSERT_EQ(alone.a.bytes, added.a.bytes);
    const auto key = [](const GemmProblem& problem) {
      return key_of(plan_product(problem.product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr)));
    };
    const auto gemm = make_cublas_gemm(test::gpu(), true);
    gemm->note(alone.product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
    Choices choices = parse_choices(gemm->choices(""));
    ASSERT_EQ(key(added), key(alone));
    gemm->use_choices(print_choices(choices));
    std::vector<std::byte> want = test::result_of(*gemm, alone);
    for (std::size_t at = 0; at < as_size(what.m * what.n * 4); at += sizeof(float)) {
      float product = 0, before = 0;
      std::memcpy(&product, want.data() + at, sizeof product);
      std::memcpy(&before, added.y.bytes.data() + at, sizeof before);
      product += before;
      std::memcpy(want.data() + at, &product, sizeof product);
    }
    EXPECT_EQ(test::result_of(*gemm, added), want) << what.name();
  }
}

}  // namespace
}  // namespace holdfast::cuda
