// The simulator's attention: as good as the CPU's as a whole, so that the plan's parts and placements are
// right.
#include "tests/cuda/sim/reference_attention.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/cuda/attention/attention_on_gpu.hpp"

namespace holdfast::cuda {
namespace {

using sim::ReferenceAttention;
using sim::SimRuntime;
using test::AttentionCase;

SimRuntime& simulator() { return dynamic_cast<SimRuntime&>(test::gpu()); }

TEST(ReferenceAttention, AgreesWithFp64) {
  for (const bool deterministic : {true, false}) {
    ReferenceAttention engine(simulator(), deterministic);
    for (const AttentionCase& what : test::attention_cases())
      EXPECT_EQ(test::wrong_with(engine, what, true), "");
  }
}

/// However it is cut, the bits are those of the CPU's attention in one piece.
TEST(ReferenceAttention, EveryCutGivesTheSameBits) {
  for (const AttentionCase& what :
       {AttentionCase{{3, 70, 6, 3, 16}}, {{3, 70, 6, 3, 16}, 20, 8}, {{2, 130, 4, 4, 32}, 50}}) {
    const testing::Shape& s = what.shape;
    const auto x = testing::random_bf16(s.tokens(), s.packed(), 1),
               dy = testing::random_bf16(s.tokens(), s.width(), 2);
    const auto places =
        what.document > 0 ? testing::documents_of(s, what.document) : testing::no_documents(s);
    const testing::Result whole = testing::run(tensor::DType::bf16, s, x, dy, testing::start_of(places));
    const std::int64_t one =
        score_bytes({s.rows, s.sequence, s.heads, s.kv_heads, s.head_size}, {0, 1, 0, 1});
    std::size_t cuts = 0;
    for (const std::int64_t budget : {one, 2 * one, s.kv_heads * one, 2 * s.kv_heads * one, score_budget})
      for (const bool deterministic : {true, false}) {
        ReferenceAttention engine(simulator(), deterministic, budget);
        const test::AttentionResult got = test::run_attention(engine, what, x, dy);
        EXPECT_TRUE(got.out && testing::same_bits(*got.out, whole.out.all())) << what.name() << budget;
        EXPECT_TRUE(got.d_qkv && testing::same_bits(*got.d_qkv, whole.d_qkv.all())) << what.name() << budget;
        EXPECT_TRUE(testing::same_bits(got.log_sum, whole.log_sum)) << what.name() << budget;
        cuts += backward_parts({s.rows, s.sequence, s.heads, s.kv_heads, s.head_size}, deterministic, budget)
                    .size();
      }
    EXPECT_GT(cuts, 20u);
  }
}

TEST(ReferenceAttention, RefusesWhatTheRealOneRefuses) {
  ReferenceAttention engine(simulator());
  kernels::Attention call;
  call.heads = call.kv_heads = 2;
  call.head_size = 64;
  call.sequence = 4;
  call.qkv.rows = 4;
  call.qkv.cols = 6 * 64;
  EXPECT_THROW(engine.workspace(call), Error);  // fp32
  call.qkv.type = tensor::DType::bf16;
  EXPECT_GT(engine.workspace(call), 0);
  call.head_size = 12;
  call.qkv.cols = 6 * 12;
  EXPECT_THROW(engine.workspace(call), Error);
}

/// A simulator of its own, since what it finds stays.
struct Racing {
  SimRuntime runtime;
  ReferenceAttention engine{runtime};
  StreamHandle stream = runtime.stream_create(Runtime::Priority::normal),
               other = runtime.stream_create(Runtime::Priority::normal);
  testing::Shape s{2, 8, 4, 2, 8};
  kernels::Attention call;
  kernels::AttentionGradient gradient;
  std::byte* memory[7];

  Racing() {
    for (std::byte*& bytes : memory) {
      bytes = static_cast<std::byte*>(runtime.device_alloc(1 << 20));
      runtime.zero(stream, bytes, 1 << 20);
    }
    wait();
    const auto matrix = [&](int i, std::int64_t cols) {
      return tensor::Mat{memory[i], tensor::DType::bf16, s.tokens(), cols, cols};
    };
    call.heads = s.heads, call.kv_heads = s.kv_heads, call.head_size = s.head_size,
    call.sequence = s.sequence;
    call.qkv = matrix(0, s.packed());
    call.out = matrix(1, s.width());
    call.log_sum = reinterpret_cast<float*>(memory[2]);
    call.documents.start = reinterpret_cast<const std::int32_t*>(memory[3]);
    call.workspace = memory[4];
    gradient = {matrix(5, s.width()), matrix(6, s.packed())};
  }
  void wait() {
    const EventHandle event = runtime.event_create();
    for (const StreamHandle each : {stream, other}) {
      runtime.event_record(event, each);
      while (!runtime.event_passed(event)) runtime.progress(1 << 10);
    }
    runtime.event_destroy(event);
  }
};

TEST(ReferenceAttention, SaysWhatItTouches) {
  for (const bool backward : {false, true})
    for (int touched = 0; touched < 7; ++touched) {
      if (!backward && touched >= 4) continue;  // not part of the forward pass
      Racing racing;
      if (backward)
        racing.engine.backward(racing.stream, racing.call, racing.gradient);
      else
        racing.engine.forward(racing.stream, racing.call);
      racing.runtime.zero(racing.other, racing.memory[touched], 16);
      EXPECT_THROW(racing.wait(), sim::Finding) << backward << ' ' << touched;
    }
  Racing alone;
  alone.engine.forward(alone.stream, alone.call);
  alone.engine.backward(alone.stream, alone.call, alone.gradient);
  EXPECT_NO_THROW(alone.wait());
}

}  // namespace
}  // namespace holdfast::cuda
