#include "src/cuda/gemm/product_plan.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "src/base/error.hpp"
#include "tests/cuda/gemm/column_major.hpp"

namespace holdfast::cuda {
namespace {

using test::column_major_product;
using test::GemmCase;
using test::GemmProblem;

TEST(ProductPlan, ColumnMajorProblemGivesTheRowMajorAnswer) {
  unsigned seed = 0;
  for (const GemmCase& what : test::gemm_cases()) {
    const GemmProblem asked(what, ++seed, true);
    GemmProblem solved = asked;
    const Product product = solved.here();
    column_major_product(plan_product(product), pointers_of(product));
    ASSERT_EQ(asked.check(solved.y.bytes, 0), "");
  }
}

TEST(ProductPlan, TheCheckFindsWrongElementsAndWritesOutside) {
  const GemmCase what{3, 5, 7, DType::bf16, DType::bf16, DType::bf16, false, true, false, false, 3, 3};
  const GemmProblem asked(what, 1, true);
  GemmProblem solved = asked;
  ProductPlan plan = plan_product(solved.here());
  column_major_product(plan, pointers_of(solved.here()));
  EXPECT_EQ(asked.check(solved.y.bytes, 0), "");
  GemmProblem outside = solved;
  outside.y.bytes[0] = std::byte{0};
  EXPECT_NE(asked.check(outside.y.bytes, 0), "");
  plan.transpose_a = false;
  std::swap(plan.a.rows, plan.a.cols);
  column_major_product(plan, pointers_of(solved.here()));
  EXPECT_NE(asked.check(solved.y.bytes, 0), "");
}

TEST(ProductPlan, LinearLayerIsTheFormThatTensorCoresLike) {
  // y (T x out) = x (T x in) W^T: the library's A is W, transposed, its B is x, as it is.
  Bf16 memory[3]{};
  Product linear;
  linear.y = {reinterpret_cast<std::byte*>(&memory[0]), DType::bf16, 4096, 11008, 11008};
  linear.a = {reinterpret_cast<std::byte*>(&memory[1]), DType::bf16, 4096, 512, 2048};
  linear.b = {reinterpret_cast<std::byte*>(&memory[2]), DType::bf16, 11008, 512, 512};
  linear.transpose_b = true;
  const ProductPlan plan = plan_product(linear);
  EXPECT_TRUE(plan.transpose_a);
  EXPECT_FALSE(plan.transpose_b);
  EXPECT_EQ(plan.d.rows, 11008);
  EXPECT_EQ(plan.d.cols, 4096);
  EXPECT_EQ(plan.inner(), 512);
  EXPECT_EQ(plan.a.leading, 512);
  EXPECT_EQ(plan.b.leading, 2048);
  EXPECT_EQ(plan.d.leading, 11008);
  EXPECT_EQ(pointers_of(linear).a, &memory[2]);
  EXPECT_EQ(pointers_of(linear).b, &memory[1]);
}

TEST(ProductPlan, ScalesGoWithTheirOperands) {
  GemmProblem problem({16, 16, 16, DType::e4m3, DType::e5m2, DType::bf16, false, true}, 1, true);
  const Product product = problem.here();
  EXPECT_EQ(pointers_of(product).scale_a, product.inverse_b);
  EXPECT_EQ(pointers_of(product).scale_b, product.inverse_a);
  EXPECT_EQ(plan_product(product).a.type, DType::e5m2);
}

TEST(ProductPlan, AScaleBesideABoundaryOf16BytesIsRefused) {
  GemmProblem problem({16, 16, 16, DType::e4m3, DType::e4m3, DType::bf16, false, true}, 1, true);
  alignas(16) const float neighbours[2] = {1, 1};
  for (const bool left : {true, false}) {
    Product product = problem.here();
    (left ? product.inverse_a : product.inverse_b) = neighbours;
    EXPECT_NO_THROW(plan_product(product));
    (left ? product.inverse_a : product.inverse_b) = neighbours + 1;
    EXPECT_THROW(plan_product(product), std::logic_error);
  }
}

TEST(ProductPlan, AlignmentIsTheAddresss) {
  alignas(256) std::byte memory[512];
  const auto aligned = [&](std::int64_t offset) {
    Product p;
    p.y = {memory, DType::bf16, 4, 4, 4};
    p.a = {memory + offset, DType::bf16, 4, 4, 4};
    p.b = {memory, DType::bf16, 4, 4, 4};
    return plan_product(p).b.alignment;
  };
  EXPECT_EQ(aligned(0), 16);
  EXPECT_EQ(aligned(64), 16);
  EXPECT_EQ(aligned(8), 8);
  EXPECT_EQ(aligned(6), 2);
}

TEST(ProductPlan, KeysTellApartWhateverMayChangeTheAlgorithm) {
  std::set<std::string> keys;
  std::set<ProductPlan> plans, alone;
  alignas(64) static std::byte memory[1 << 20];
  for (const GemmCase& what : test::gemm_cases()) {
    GemmProblem problem(what, 1, true);
    // At fixed addresses, so that alignments do not depend on the allocator.
    ProductPlan plan =
        plan_product(problem.product(memory, memory, memory, memory, &problem.inverse_a, &problem.inverse_b));
    keys.insert(key_of(plan)), plans.insert(plan);
    EXPECT_EQ(key_of(plan), key_of(ProductPlan(plan)));
    plan.add = false;  // to what is added has the algorithm of the product alone
    alone.insert(plan);
  }
  EXPECT_EQ(plans.size(), test::gemm_cases().size());
  EXPECT_EQ(keys.size(), alone.size());
  EXPECT_LT(keys.size(), plans.size());
}

TEST(ProductPlan, KeyReadsAsOurProduct) {
  alignas(16) std::byte memory[16];
  Product p;
  p.y = {memory, DType::fp32, 11008, 4096, 4096};
  p.a = {memory, DType::bf16, 8192, 11008, 22016};
  p.b = {memory, DType::bf16, 8192, 4096, 4096};
  p.transpose_a = true;
  p.add = true;
  EXPECT_EQ(key_of(plan_product(p)), "11008x4096x8192 bf16*bf16->fp32 tn ld 22016,4096,4096 align 16,16,16");
  EXPECT_EQ(describe(plan_product(p)),
            "y (11008 x 4096, fp32) += a (8192 x 11008, bf16, transposed) * b (8192 x 4096, bf16)");
}

TEST(ProductPlan, RefusesWhatNoProductMayBe) {
  const GemmCase good{16, 16, 16, DType::bf16, DType::bf16, DType::bf16, false, true};
  const auto plan = [](const GemmCase& what) {
    GemmProblem problem(what, 1, true);
    return plan_product(problem.here());
  };
  EXPECT_NO_THROW(plan(good));
  const auto changed = [&](auto change) {
    GemmCase what = good;
    change(what);
    return what;
  };
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.b = DType::fp32; })), std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.add = true; })), std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.a = c.b = DType::fp32; })), std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.y = DType::fp32, c.bias = true; })), std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.a = DType::e4m3; })), std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.a = c.b = DType::e5m2; })), std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.a = c.b = DType::e4m3, c.transpose_b = false; })),
               std::logic_error);
  EXPECT_THROW(plan(changed([](GemmCase& c) { c.a = c.b = c.y = DType::e4m3; })), std::logic_error);
  GemmProblem shapes(good, 1, true);
  Product wrong = shapes.here();
  wrong.a.cols = 15;
  EXPECT_THROW(plan_product(wrong), std::logic_error);
  wrong = shapes.here();
  wrong.y.rows = 15;
  EXPECT_THROW(plan_product(wrong), std::logic_error);
}

std::string refusal(const GemmCase& what, int major, int minor) {
  alignas(64) static std::byte memory[1 << 16];
  GpuTraits gpu;
  gpu.name = "NVIDIA A100";
  gpu.major = major;
  gpu.minor = minor;
  const GemmProblem problem(what, 1, true);
  try {
    require_supported(
        plan_product(problem.product(memory, memory, memory, memory, &problem.inverse_a, &problem.inverse_b)),
        gpu);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "";
}

TEST(ProductPlan, EightBitProductsNeedTheirTensorCores) {
  const GemmCase fp8{32, 48, 64, DType::e4m3, DType::e4m3, DType::bf16, false, true};
  EXPECT_EQ(refusal(fp8, 9, 0), "");
  EXPECT_EQ(refusal(fp8, 8, 9), "");
  EXPECT_NE(refusal(fp8, 8, 0).find("NVIDIA A100 has compute capability 8.0"), std::string::npos);
  EXPECT_EQ(refusal({5, 48, 64, DType::e4m3, DType::e4m3, DType::bf16, false, true}, 9, 0),
            "");  // tokens: any number
  for (const GemmCase& ragged :
       {GemmCase{32, 40, 64, DType::e4m3, DType::e4m3, DType::bf16, false, true},
        GemmCase{32, 48, 72, DType::e4m3, DType::e4m3, DType::bf16, false, true},
        GemmCase{32, 48, 64, DType::e4m3, DType::e4m3, DType::bf16, false, true, false, false, 8}})
    EXPECT_NE(refusal(ragged, 9, 0).find("multiples of 16"), std::string::npos) << ragged.name();
  EXPECT_EQ(refusal({3, 5, 7, DType::bf16, DType::bf16, DType::bf16}, 8, 0), "");
}

}  // namespace
}  // namespace holdfast::cuda
