#include "tests/cuda/sim/reference_gemm.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/cuda/gemm/gemm_on_gpu.hpp"

namespace holdfast::cuda {
namespace {

using sim::ReferenceGemm;
using test::GemmCase;
using test::GemmProblem;

sim::SimRuntime& simulator() { return dynamic_cast<sim::SimRuntime&>(test::gpu()); }

TEST(ReferenceGemm, EveryFormOfProduct) {
  ReferenceGemm gemm(simulator());
  unsigned seed = 0;
  for (const GemmCase& what : test::gemm_cases())
    ASSERT_EQ(test::wrong_with(gemm, GemmProblem(what, ++seed, false)), "");
}

TEST(ReferenceGemm, ProductsOfNothing) {
  ReferenceGemm gemm(simulator());
  test::check_products_of_nothing(gemm);
}

TEST(ReferenceGemm, ChoicesAreMadeOnceAndKept) {
  const GemmProblem one({16, 8, 32, DType::bf16, DType::bf16, DType::fp32}, 1, false);
  const GemmProblem two({24, 8, 32, DType::bf16, DType::bf16, DType::fp32}, 2, false);
  ReferenceGemm first(simulator(), true, 1);
  EXPECT_EQ(first.choices(""), "");
  first.note(one.product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  const std::string text = first.choices("");
  EXPECT_EQ(parse_choices(text).entries.size(), 1u);
  EXPECT_EQ(first.searches(), 1);
  EXPECT_EQ(first.choices(text), text);
  EXPECT_EQ(first.searches(), 1);
  // Another attempt with other luck keeps them, and searches for what is new only.
  ReferenceGemm second(simulator(), true, 2);
  for (const GemmProblem* problem : {&one, &two})
    second.note(problem->product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  const Choices more = parse_choices(second.choices(text));
  EXPECT_EQ(second.searches(), 1);
  EXPECT_EQ(more.entries.size(), 2u);
  for (const auto& [key, algorithm] : parse_choices(text).entries) EXPECT_EQ(more.entries.at(key), algorithm);
  ReferenceGemm free(simulator(), false);
  EXPECT_THROW(free.use_choices(text), Error);
  EXPECT_THROW(free.choices(text), Error);
}

TEST(ReferenceGemm, ChoicesChangeBitsAndEqualOnesDoNot) {
  const GemmProblem problem({64, 64, 333, DType::bf16, DType::bf16, DType::fp32, true, false, true}, 3,
                            false);
  ReferenceGemm gemm(simulator());
  gemm.note(problem.product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  Choices choices = parse_choices(gemm.choices(""));
  const auto bits = [&](int algorithm) {
    choices.entries.begin()->second.algorithm = algorithm;
    gemm.use_choices(print_choices(choices));
    return test::result_of(gemm, problem);
  };
  const auto whole = bits(ReferenceGemm::whole), halves = bits(ReferenceGemm::halves);
  EXPECT_NE(whole, halves);
  EXPECT_EQ(bits(ReferenceGemm::whole), whole);
  EXPECT_EQ(problem.check(halves), "");
  gemm.use_choices("");
  EXPECT_EQ(test::result_of(gemm, problem), whole);
  // Both are found by some search.
  std::set<int> found;
  for (std::uint64_t luck = 1; luck <= 20; ++luck) {
    ReferenceGemm lucky(simulator(), true, luck);
    lucky.note(problem.product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
    found.insert(parse_choices(lucky.choices("")).entries.begin()->second.algorithm);
  }
  EXPECT_EQ(found, (std::set<int>{ReferenceGemm::whole, ReferenceGemm::halves}));
}

TEST(ReferenceGemm, SaysWhatItReadsAndWrites) {
  const GemmProblem problem({8, 8, 8, DType::bf16, DType::bf16, DType::bf16, false, false, false, true}, 4,
                            false);
  for (int victim = 0; victim < 4; ++victim) {
    sim::SimRuntime runtime;
    ReferenceGemm gemm(runtime);
    std::byte* memory[4];
    const StreamHandle main = runtime.stream_create(Runtime::Priority::normal);
    const StreamHandle other = runtime.stream_create(Runtime::Priority::normal);
    for (std::byte*& m : memory) m = static_cast<std::byte*>(runtime.device_alloc(4096));
    gemm.run(main, problem.product(memory[0], memory[1], memory[2], memory[3], nullptr, nullptr));
    const auto settle = [&] {
      const EventHandle event = runtime.event_create();
      runtime.event_record(event, other);
      while (!runtime.event_passed(event)) runtime.progress(100);
    };
    runtime.zero(other, memory[victim], 16);
    EXPECT_THROW(
        {
          settle();
          runtime.stream_wait(other, [&] {
            const EventHandle event = runtime.event_create();
            runtime.event_record(event, main);
            return event;
          }());
          settle();
        },
        sim::Finding)
        << victim;
  }
}

}  // namespace
}  // namespace holdfast::cuda
