// What we do with cuBLASLt, on a stand-in for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "src/base/error.hpp"
#include "src/cuda/gemm/choices.hpp"
#include "tests/cuda/gemm/gemm_on_gpu.hpp"
#include "tests/cuda/sim/cublas_stand_in.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda {
namespace {

using sim::cublas_stand_in;
using sim::OfferedAlgorithm;
using test::GemmCase;
using test::GemmProblem;

const GemmCase gradient{24, 16, 32, DType::bf16, DType::bf16, DType::fp32, true, false, true};
const GemmCase linear{24, 16, 32, DType::bf16, DType::bf16, DType::bf16, false, true};
const GemmCase single{24, 16, 32, DType::fp32, DType::fp32, DType::fp32, false, true};

class CublasRulesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cublas_stand_in() = {};
    cublas_stand_in().offers = {{7}};
  }
  static std::unique_ptr<Gemm> make(bool deterministic = true) {
    return make_cublas_gemm(test::gpu(), deterministic);
  }
  static OfferedAlgorithm offer(
      int id, const std::function<void(OfferedAlgorithm&)>& change = [](auto&) {}) {
    OfferedAlgorithm made{id};
    change(made);
    return made;
  }
  /// The algorithm that a product runs with.
  static int taken(const GemmCase& what, bool deterministic) {
    const auto gemm = make(deterministic);
    EXPECT_EQ(test::wrong_with(*gemm, GemmProblem(what, 1, false)), "");
    return cublas_stand_in().launched.back();
  }
  static void note(Gemm& gemm, const GemmCase& what) {
    gemm.note(GemmProblem(what, 1, false).product(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  }
  /// What a search finds.
  static Algorithm searched(const GemmCase& what, bool deterministic = true) {
    const auto gemm = make(deterministic);
    note(*gemm, what);
    const Choices choices = parse_choices(gemm->choices(""));
    EXPECT_EQ(choices.entries.size(), 1u);
    return choices.entries.begin()->second;
  }
  static std::string complaint(Exit exit, const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), exit);
      return error.what();
    }
    return "";
  }
};

TEST_F(CublasRulesTest, EveryFormOfProductIsPreparedOnce) {
  const auto gemm = make();
  unsigned seed = 0;
  for (const GemmCase& what : test::gemm_cases())
    ASSERT_EQ(test::wrong_with(*gemm, GemmProblem(what, ++seed, false), 0), "");  // twice each
  EXPECT_EQ(cublas_stand_in().heuristics, static_cast<int>(test::gemm_cases().size()));
  EXPECT_EQ(cublas_stand_in().launched.size(), 2 * test::gemm_cases().size());
}

TEST_F(CublasRulesTest, ProductsOfNothing) {
  test::check_products_of_nothing(*make());
  EXPECT_TRUE(cublas_stand_in().launched.empty());
}

TEST_F(CublasRulesTest, TheFavouriteThatKeepsTheRules) {
  cublas_stand_in().offers = {
      offer(1, [](auto& a) { a.supported = false; }),
      offer(2, [](auto& a) { a.split_k = 4, a.reduction = sim::reduction_in_output_type; }),
      offer(3, [](auto& a) { a.workspace = std::uint64_t{65} << 20; }),
      offer(4, [](auto& a) { a.split_k = 4, a.reduction = sim::reduction_in_place; }),
      offer(5, [](auto& a) { a.numerics = sim::inputs_as_tf32; }),
      offer(6, [](auto& a) { a.split_k = 4, a.reduction = sim::reduction_in_fp32, a.workspace = 64 << 20; }),
      offer(7),
  };
  EXPECT_EQ(taken(gradient, true), 5);
  EXPECT_EQ(cublas_stand_in().reduction_mask, sim::reduction_in_fp32);
  EXPECT_EQ(taken(single, true), 6);  // not TF32
  EXPECT_EQ(taken(gradient, false), 4);
  EXPECT_EQ(taken(linear, false), 5);  // partial sums of bf16 in place would be rounded
  EXPECT_EQ(cublas_stand_in().reduction_mask, sim::reduction_in_fp32);
}

TEST_F(CublasRulesTest, TheLibraryKnowsTheAlignments) {
  GemmCase what = linear;
  taken(what, true);
  EXPECT_EQ(cublas_stand_in().alignment_a, 16u);
  what.front = 1;
  taken(what, true);
  EXPECT_EQ(cublas_stand_in().alignment_a, 2u);
  what = gradient;
  what.front = 2;
  taken(what, true);
  EXPECT_EQ(cublas_stand_in().alignment_a, 4u);
  EXPECT_EQ(cublas_stand_in().alignment_d, 8u);
}

TEST_F(CublasRulesTest, NoAlgorithmIsSaidWithTheShape) {
  for (const bool any : {false, true}) {
    cublas_stand_in().offers.clear();
    if (any) cublas_stand_in().offers = {offer(1, [](auto& a) { a.supported = false; })};
    const std::string run = complaint(Exit::runtime, [] { taken(gradient, true); });
    EXPECT_NE(run.find("y (24 x 16, fp32) += a (32 x 24, bf16, transposed) * b (32 x 16, bf16)"),
              std::string::npos)
        << run;
    EXPECT_NE(complaint(Exit::runtime, [] { searched(gradient); }).find("y (24 x 16, fp32)"),
              std::string::npos);
  }
}

TEST_F(CublasRulesTest, AProductThatFailsIsSaidWithTheShape) {
  cublas_stand_in().offers = {offer(1, [](auto& a) { a.launches = false; })};
  EXPECT_NE(complaint(Exit::runtime, [] { taken(linear, true); }).find("b (16 x 32, bf16, transposed)"),
            std::string::npos);
}

TEST_F(CublasRulesTest, WithoutAGpuTheReasonIsSaid) {
  cublas_stand_in().starts = false;
  const std::string text = complaint(Exit::runtime, [] { make(); });
  EXPECT_NE(text.find("cuBLASLt cannot start"), std::string::npos);
  EXPECT_NE(text.find("CUBLAS_STATUS_NOT_INITIALIZED"), std::string::npos);
  EXPECT_NE(text.find("cuBLASLt 13.1.0 was built for CUDA 13"), std::string::npos) << text;
}

TEST_F(CublasRulesTest, StreamsDoNotShareScratch) {
  Runtime& gpu = test::gpu();
  const StreamHandle other = gpu.stream_create(Runtime::Priority::high);
  const auto gemm = make();
  const GemmProblem problem(linear, 1, false);
  const test::DeviceArray<std::byte> a(problem.a.bytes), b(problem.b.bytes), y(problem.y.bytes),
      z(problem.y.bytes);
  std::set<void*> scratch;
  // Not ordered against each other: the simulator would find a race in shared scratch.
  for (int i = 0; i < 3; ++i) {
    gemm->run(test::stream(), problem.product(a.data(), b.data(), y.data(), nullptr, nullptr, nullptr));
    scratch.insert(cublas_stand_in().workspace);
    gemm->run(other, problem.product(a.data(), b.data(), z.data(), nullptr, nullptr, nullptr));
    scratch.insert(cublas_stand_in().workspace);
  }
  EXPECT_EQ(scratch.size(), 2u);
  const EventHandle event = gpu.event_create();
  gpu.event_record(event, other);
  gpu.stream_wait(test::stream(), event);
  test::finish();
  EXPECT_EQ(y.download(), z.download());
  gpu.event_destroy(event);
  gpu.stream_destroy(other);
}

TEST_F(CublasRulesTest, TheSearchTakesTheFastestThatWorks) {
  cublas_stand_in().offers = {
      offer(1, [](auto& a) { a.microseconds = 3000; }),
      offer(2, [](auto& a) { a.microseconds = 500, a.launches = false; }),
      offer(3, [](auto& a) { a.microseconds = 2000; }),
      offer(4, [](auto& a) { a.microseconds = 1000, a.steady = false; }),
      offer(5, [](auto& a) { a.microseconds = 2000; }),
      offer(6, [](auto& a) { a.microseconds = 100, a.split_k = 2, a.reduction = sim::reduction_in_place; }),
  };
  // 4 gives other bits each time; 6 breaks the rules; of equal ones the library's favourite.
  const Algorithm best = searched(linear, false);
  EXPECT_EQ(best.algorithm, 4);
  EXPECT_EQ(best.microseconds, 1000);
  EXPECT_EQ(best.cluster, 3);
  EXPECT_EQ(searched(linear, true).algorithm, 3);
  EXPECT_EQ(searched(gradient, false).algorithm, 6);
}

TEST_F(CublasRulesTest, GradientsAreAddedWholeByTheAlgorithmOfTheProductAlone) {
  cublas_stand_in().offers = {
      offer(1),
      offer(2, [](auto& a) { a.microseconds = 900, a.adds_whole = false; }),
  };
  EXPECT_EQ(searched(linear, true).algorithm, 2) << "bf16, which nothing is added to";
  EXPECT_EQ(searched(gradient, true).algorithm, 1);
  GemmCase alone = gradient;
  alone.add = false;
  const auto gemm = make();
  note(*gemm, gradient), note(*gemm, alone);
  EXPECT_EQ(parse_choices(gemm->choices("")).entries.size(), 1u);
}

TEST_F(CublasRulesTest, TheSearchNeedsOneThatWorks) {
  cublas_stand_in().offers = {offer(1, [](auto& a) { a.launches = false; }),
                              offer(2, [](auto& a) { a.steady = false; })};
  const std::string text = complaint(Exit::runtime, [] { searched(linear); });
  EXPECT_NE(text.find("no algorithm of cuBLASLt 13.1.0 computes y (24 x 16, bf16)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("2 candidates failed"), std::string::npos) << text;
}

TEST_F(CublasRulesTest, EveryFormCanBeSearchedForAndLeavesNoMemoryBehind) {
  cublas_stand_in().offers = {offer(1), offer(2, [](auto& a) { a.microseconds = 900; })};
  const auto gemm = make();
  const std::int64_t free = test::gpu().free_bytes();
  const auto cases = test::gemm_cases();
  for (std::size_t i = 0; i < cases.size(); i += 23) {
    GemmProblem problem(cases[i], 1, false);
    gemm->note(problem.here());
  }
  for (const auto& [key, algorithm] : parse_choices(gemm->choices("")).entries)
    EXPECT_EQ(algorithm.algorithm, 2) << key;
  EXPECT_EQ(test::gpu().free_bytes(), free);
}

TEST_F(CublasRulesTest, WithoutRoomTheFavouriteIsTakenUnmeasured) {
  cublas_stand_in().offers = {offer(1), offer(2, [](auto& a) { a.microseconds = 900; })};
  sim::SimRuntime small(sim::Options{.device_bytes = 80 << 20});
  const auto gemm = make_cublas_gemm(small, true);  // takes 64 MiB
  note(*gemm, gradient);
  const Algorithm taken = parse_choices(gemm->choices("")).entries.begin()->second;
  EXPECT_EQ(taken.algorithm, 1);
  EXPECT_EQ(taken.microseconds, 0);
  EXPECT_TRUE(cublas_stand_in().launched.empty());
}

TEST_F(CublasRulesTest, ChoicesAreUsedAndNotMadeAgain) {
  cublas_stand_in().offers = {offer(1), offer(2, [](auto& a) { a.microseconds = 900; })};
  const GemmProblem problem(gradient, 1, false);
  const auto first = make();
  EXPECT_EQ(first->choices(""), "");
  note(*first, gradient);
  const std::string text = first->choices("");
  cublas_stand_in().offers[0].microseconds = 100;  // another search would choose 1
  const auto second = make();
  note(*second, gradient);
  cublas_stand_in().launched.clear();
  cublas_stand_in().heuristics = 0;
  EXPECT_EQ(second->choices(text), text);
  EXPECT_TRUE(cublas_stand_in().launched.empty());
  second->use_choices(text);
  EXPECT_EQ(test::wrong_with(*second, problem), "");
  EXPECT_EQ(cublas_stand_in().launched, (std::vector<int>{2, 2}));
  EXPECT_EQ(cublas_stand_in().heuristics, 0);
  second->use_choices("");  // back to the library's favourite
  EXPECT_EQ(test::wrong_with(*second, problem), "");
  EXPECT_EQ(cublas_stand_in().launched.back(), 1);
  // What is new is searched for, what is known stays.
  note(*second, linear);
  const Choices more = parse_choices(second->choices(text));
  EXPECT_EQ(more.entries.size(), 2u);
  for (const auto& [key, algorithm] : parse_choices(text).entries) EXPECT_EQ(more.entries.at(key), algorithm);
}

TEST_F(CublasRulesTest, ChoicesOfAnotherPlaceOrDamagedOnesAreRefused) {
  const auto gemm = make();
  note(*gemm, gradient);
  const std::string text = gemm->choices("");
  EXPECT_NE(complaint(Exit::usage, [&] { make(false)->use_choices(text); }).find("another mode"),
            std::string::npos);
  cublas_stand_in().version = 130200;
  EXPECT_NE(complaint(Exit::usage, [&] { make()->use_choices(text); }).find("cuBLASLt 13.2.0"),
            std::string::npos);
  EXPECT_NE(complaint(Exit::usage, [&] { make()->choices(text); }).find("another library"),
            std::string::npos);
  cublas_stand_in().version = 130100;
  Choices damaged = parse_choices(text);
  damaged.entries.begin()->second.state[1] ^= 1;
  const auto other = make();
  other->use_choices(print_choices(damaged));
  EXPECT_NE(complaint(Exit::runtime, [&] { test::result_of(*other, GemmProblem(gradient, 1, false)); })
                .find("tuning.json"),
            std::string::npos);
}

TEST_F(CublasRulesTest, EightBitProductsAreRefusedWhereTheyCannotBe) {
  class Older : public sim::SimRuntime {
   public:
    Older() { facts_.name = "NVIDIA A100", facts_.major = 8, facts_.minor = 0; }
    const GpuTraits& facts() const override { return facts_; }

   private:
    GpuTraits facts_;
  } older;
  const auto gemm = make_cublas_gemm(older, true);
  GemmProblem fp8({32, 32, 32, DType::e4m3, DType::e4m3, DType::bf16, false, true}, 1, false);
  EXPECT_NE(complaint(Exit::usage, [&] { gemm->note(fp8.here()); }).find("8.9 is needed"), std::string::npos);
  EXPECT_NE(complaint(Exit::usage, [&] { gemm->run(StreamHandle{}, fp8.here()); }).find("8.9 is needed"),
            std::string::npos);
}

TEST_F(CublasRulesTest, IdentityNamesLibraryAndMode) {
  EXPECT_EQ(make()->identity(), "cuBLASLt 13.1.0, sums in fp32 and added whole, deterministic");
  EXPECT_EQ(make(false)->identity(), "cuBLASLt 13.1.0, sums in fp32 and added whole, free");
}

}  // namespace
}  // namespace holdfast::cuda
