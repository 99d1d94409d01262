// The graphs that cuDNN gets, computed on the host part by part: attention, whatever the parts and documents.
// Nothing of cuDNN's own arithmetic is tested here.
#include "src/cuda/attention/cudnn_attention.hpp"

#include <gtest/gtest.h>

#include "tests/cuda/attention/cudnn_plans.hpp"
#include "tests/cuda/attention/graph_on_host.hpp"
#include "tests/kernels/attention_fixture.hpp"

namespace holdfast::cuda {
namespace {

using test::CudnnPlans;
using test::GraphOnHost;
using testing::Array;
using testing::Call;
using testing::Shape;

struct Graphs : CudnnPlans {
  /// Both passes; `budget`: see backward_parts().
  void compute(Call& call, bool deterministic, std::int64_t budget) {
    const AttentionShape shape = shape_of(call.a);
    const kernels::AttentionGradient gradient = call.gradient();
    const AttentionStrides strides{call.a.qkv.stride, call.a.out.stride, gradient.d_out.stride,
                                   gradient.d_qkv.stride};
    AttentionScalars scalars;
    scalars.scale = static_cast<float>(call.a.score_scale());
    for (const AttentionPart& part : forward_parts(shape)) {
      const PartLayout layout(shape, part);
      GraphOnHost(attention_forward_plan(layout, strides, device_).json(),
                  forward_bindings(layout, call.a, scalars))
          .run();
    }
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> plans;
    for (const AttentionPart& part : backward_parts(shape, deterministic, budget)) {
      const PartLayout layout(shape, part);
      const PartScratch scratch = backward_scratch(shape, part, deterministic);
      std::string& plan = plans[{part.rows, part.kv_heads}];
      if (plan.empty()) plan = attention_backward_plan(layout, strides, deterministic, device_).json();
      std::vector<std::byte> workspace(scratch.library, std::byte{0xff});
      GraphOnHost(plan, backward_bindings(layout, scratch, deterministic, call.a, gradient, workspace.data(),
                                          scalars))
          .run();
    }
  }

  void check(const Shape& s, std::int64_t document, bool deterministic, std::int64_t budget) {
    const auto places = document > 0 ? testing::documents_of(s, document) : testing::no_documents(s);
    testing::Case c = testing::reference_of(s, places);
    const Array dy = testing::random_bf16(s.tokens(), s.width(), 7);
    reference::Tape tape;
    const int x = tape.input(c.inputs[0]);
    tape.backward(c.f(tape, {x}), dy);
    Call call(tensor::DType::bf16, s, c.inputs[0], dy, testing::start_of(places), false);
    compute(call, deterministic, budget);
    EXPECT_LT(testing::distance(call.result.out.all(), c.out.v), 1e-2);
    EXPECT_LT(testing::distance(call.result.d_qkv.all(), tape.gradient(x).v), 1e-2);
    // The same numbers at the same places as the CPU's.
    const testing::Result cpu =
        testing::run(tensor::DType::bf16, s, c.inputs[0], dy, testing::start_of(places));
    EXPECT_LT(testing::distance(call.result.log_sum, cpu.log_sum), 1e-5);
  }
};

TEST(CudnnLibrary, IsRefusedWhenItIsTooOldOrForAnotherCuda) {
  const auto refusal = [](std::size_t version, std::size_t cuda) -> std::string {
    try {
      check_library(version, cuda);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return error.what();
    }
    return "";
  };
  constexpr std::size_t release = CUDART_VERSION / 1000, enough = 91900;
  EXPECT_EQ(refusal(enough, 1000 * release), "");
  EXPECT_EQ(refusal(enough, 1000 * release + 990), "");
  EXPECT_EQ(refusal(91501, 1000 * release),
            "cuDNN 9.15.1 is too old (attention needs 9.16.0). install a newer one?");
  EXPECT_EQ(refusal(enough, 1000 * (release - 1) + 90),
            "cuDNN 9.19.0 is for CUDA " + std::to_string(release - 1) + " (this backend is for CUDA " +
                std::to_string(release) + "). is another libcudnn.so.9 found first?");
  EXPECT_EQ(refusal(cudnnGetVersion(), cudnnGetCudartVersion()), "");
}

TEST_F(Graphs, AttendToDocumentsInParts) { check({2, 37, 6, 2, 16}, 11, true, 1); }
TEST_F(Graphs, AttendToWholeRowsAtOnce) { check({2, 21, 3, 3, 8}, 0, true, score_budget); }
TEST_F(Graphs, AddGradientsOfQueriesWhenNoOrderIsAskedFor) { check({3, 19, 4, 2, 8}, 5, false, 1); }

}  // namespace
}  // namespace holdfast::cuda
