// cuDNN's plans for attention on an H200, made without one: which engines are chosen, which kernels compiled,
// how much memory they want.
#include "src/cuda/attention/cudnn_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/cuda/attention/cudnn_plans.hpp"

namespace holdfast::cuda {
namespace {

using test::CudnnPlans;
using ::testing::HasSubstr;

/// Both head sizes, kinds of heads and kinds of rows, and lengths up to the longest that people train with.
const std::vector<AttentionShape> shapes{{4, 1024, 12, 12, 64, true},
                                         {1, 4096, 32, 32, 128, false},
                                         {2, 4096, 32, 8, 128, true},
                                         {1, 8192, 32, 8, 128, false},
                                         {1, 8192, 32, 8, 128, true}};

/// The name of the kernel that does the products.
std::string kernel_of(const CudnnPlan& plan) {
  const std::string text = plan.json(), key = "\"kernelName\":\"";
  const std::size_t at = text.find(key);
  return at == std::string::npos
             ? ""
             : text.substr(at + key.size(), text.find('"', at + key.size()) - at - key.size());
}

TEST_F(CudnnPlans, ForwardIsOneFusedKernelOfThisGpu) {
  for (const AttentionShape& shape : shapes) {
    const AttentionPlans made = plans(AttentionPass::forward, shape);
    ASSERT_EQ(made.plans().size(), 1u);
    EXPECT_THAT(kernel_of(made.plans()[0]), HasSubstr("sm90_flash_fprop_wgmma"));
    EXPECT_LE(made.workspace(), 4096);
  }
}

TEST_F(CudnnPlans, DeterministicBackwardKeepsGradientsOfScoresWithinTheBudget) {
  for (const AttentionShape& shape : shapes) {
    const AttentionPlans made = plans(AttentionPass::backward, shape);
    for (const AttentionPlans::Part& part : made.parts()) {
      const CudnnPlan& plan = made.plans()[part.plan];
      EXPECT_FALSE(plan.nondeterministic());
      EXPECT_THAT(kernel_of(plan), HasSubstr("sm90_flash_bprop_wgmma"));
      // Scores, gradients of keys and values by query heads where several share them, and little else.
      const std::int64_t scores = score_bytes(shape, part.layout.part()),
                         rows = part.layout.part().rows * part.layout.heads() * shape.sequence,
                         shared = shape.group() > 1 ? 2 * rows * shape.head_size * 2 : 0;
      EXPECT_GE(plan.workspace(), scores);
      EXPECT_LE(plan.workspace(), scores + shared + 4096);
    }
    const std::int64_t one_head = score_bytes(shape, {0, 1, 0, 1});
    EXPECT_LE(made.workspace(), std::max(score_budget, one_head) * 9 / 8) << shape.sequence;
  }
}

TEST_F(CudnnPlans, WithoutAFixedOrderScoresAreNotStored) {
  for (const AttentionShape& shape : shapes) {
    const AttentionPlans made = plans(AttentionPass::backward, shape, false);
    ASSERT_EQ(made.parts().size(), 1u);
    EXPECT_THAT(kernel_of(made.plans()[0]), HasSubstr("sm90_flash_bprop_wgmma"));
    const std::int64_t numbers = shape.tokens() * shape.heads, queries = numbers * shape.head_size * 4;
    EXPECT_LE(made.workspace(), queries + (shape.group() > 1 ? queries : 0) + numbers * 4 + 8192);
  }
}

TEST_F(CudnnPlans, EveryLengthAndHeadSizeThatIsAcceptedHasPlans) {
  for (const std::int64_t sequence : {1, 77}) {
    const AttentionShape shape{3, sequence, 4, 2, 64, true};
    EXPECT_NO_THROW(plans(AttentionPass::forward, shape)) << sequence;
    for (const bool deterministic : {true, false})
      EXPECT_NO_THROW(plans(AttentionPass::backward, shape, deterministic)) << sequence;
  }
  for (const std::int64_t head_size : {8, 80, 96}) {
    const AttentionShape shape{2, 256, 4, 4, head_size, false};
    EXPECT_NO_THROW(plans(AttentionPass::forward, shape)) << head_size;
    EXPECT_NO_THROW(plans(AttentionPass::backward, shape)) << head_size;
  }
}

TEST_F(CudnnPlans, DocumentsTakeNoMoreScratch) {
  AttentionShape shape{2, 1000, 8, 2, 64, false}, with = shape;
  with.documents = true;
  EXPECT_EQ(plans(AttentionPass::forward, with).workspace(),
            plans(AttentionPass::forward, shape).workspace());
  for (const bool deterministic : {true, false})
    EXPECT_EQ(plans(AttentionPass::backward, with, deterministic).workspace(),
              plans(AttentionPass::backward, shape, deterministic).workspace());
}

TEST_F(CudnnPlans, PartsOfOneSizeShareAPlan) {
  const AttentionPlans equal = plans(AttentionPass::backward, {1, 4096, 32, 32, 128, false});
  EXPECT_EQ(equal.parts().size(), 4u);
  EXPECT_EQ(equal.plans().size(), 1u);
  const AttentionPlans unequal = plans(AttentionPass::backward, {1, 4096, 20, 20, 64, false});
  EXPECT_EQ(unequal.parts().size(), 3u);
  EXPECT_EQ(unequal.plans().size(), 2u);
  for (const AttentionPlans::Part& part : unequal.parts())
    EXPECT_EQ(part.plan, part.layout.part().kv_heads == 6 ? 0u : 1u);
}

/// The plan's own text says what its kernels will be given: every tensor at its place, as the matrices lie.
TEST_F(CudnnPlans, KernelsReadTheCallersMatricesInPlace) {
  const AttentionShape shape{2, 1024, 8, 2, 64, true};
  const AttentionPlans made = plans(AttentionPass::forward, shape);
  const std::string text = made.plans()[0].json();
  const auto tensor = [](int uid, const char* dims, const char* strides) {
    return ::testing::AllOf(HasSubstr("\"name\":\"" + std::to_string(uid) + "\""), HasSubstr(dims),
                            HasSubstr(strides));
  };
  EXPECT_THAT(text, tensor(uid_queries, "\"dim\":[2,8,1024,64]", "\"stride\":[786432,64,768,1]"));
  EXPECT_THAT(text, tensor(uid_keys, "\"dim\":[2,2,64,1024]", "\"stride\":[786432,64,1,768]"));
  EXPECT_THAT(text, tensor(uid_log_sum, "\"dim\":[2,8,1024,1]", "\"stride\":[1024,2048,1,1]"));
  EXPECT_THAT(text, tensor(uid_starts, "\"dim\":[2,1,1024,1]", "\"stride\":[1024,1024,1,1]"));
}

TEST_F(CudnnPlans, BindingsAreTheTensorsOfTheGraph) {
  for (const bool documents : {false, true})
    for (const bool deterministic : {false, true}) {
      const AttentionShape shape{2, 256, 8, 2, 64, documents};
      const PartLayout layout(shape, {1, 1, 1, 1});
      std::vector<std::int32_t> starts(512);
      std::vector<float> log_sum(8 * 512);
      std::vector<std::byte> qkv(512 * 768 * 2), out(512 * 512 * 2), d_out(out.size()), d_qkv(qkv.size()),
          workspace(1 << 20);
      kernels::Attention call;
      call.qkv = tensor::dense(reinterpret_cast<tensor::Bf16*>(qkv.data()), 512, 768);
      call.out = tensor::dense(reinterpret_cast<tensor::Bf16*>(out.data()), 512, 512);
      call.log_sum = log_sum.data();
      call.documents.start = documents ? starts.data() : nullptr;
      const kernels::AttentionGradient gradient{
          tensor::dense(reinterpret_cast<tensor::Bf16*>(d_out.data()), 512, 512),
          tensor::dense(reinterpret_cast<tensor::Bf16*>(d_qkv.data()), 512, 768)};
      const PartScratch scratch = backward_scratch(shape, layout.part(), deterministic);
      const AttentionScalars scalars;
      std::map<std::int64_t, const void*> bound;
      for (const CudnnBinding& b :
           backward_bindings(layout, scratch, deterministic, call, gradient, workspace.data(), scalars))
        EXPECT_TRUE(bound.emplace(b.uid, b.address).second) << b.uid << " is bound twice";
      EXPECT_EQ(bound.size(), 14u + (documents ? 1 : 0) - (deterministic ? 1 : 0));
      const std::int64_t token = 256;  // of the second row
      EXPECT_EQ(bound[uid_queries], qkv.data() + (token * 768 + 4 * 64) * 2);
      EXPECT_EQ(bound[uid_keys], qkv.data() + (token * 768 + 9 * 64) * 2);
      EXPECT_EQ(bound[uid_values], qkv.data() + (token * 768 + 11 * 64) * 2);
      EXPECT_EQ(bound[uid_out], out.data() + (token * 512 + 4 * 64) * 2);
      EXPECT_EQ(bound[uid_d_out], d_out.data() + (token * 512 + 4 * 64) * 2);
      EXPECT_EQ(bound[uid_d_queries], d_qkv.data() + (token * 768 + 4 * 64) * 2);
      EXPECT_EQ(bound[uid_d_keys], d_qkv.data() + (token * 768 + 9 * 64) * 2);
      EXPECT_EQ(bound[uid_d_values], d_qkv.data() + (token * 768 + 11 * 64) * 2);
      EXPECT_EQ(bound[uid_log_sum], log_sum.data() + 4 * 512 + token);
      EXPECT_EQ(bound[uid_scale], &scalars.scale);
      EXPECT_EQ(bound[uid_masked], &scalars.masked);
      EXPECT_EQ(bound[uid_one], &scalars.one);
      EXPECT_EQ(bound[uid_mean], workspace.data() + scratch.mean);
      if (documents) {
        EXPECT_EQ(bound[uid_starts], starts.data() + token);
      }
      if (!deterministic) {
        EXPECT_EQ(bound[uid_d_query_sums], workspace.data() + scratch.d_query_sums);
      }
    }
}

TEST_F(CudnnPlans, ErrorsNameTheCallAndCudnnsReason) {
  const auto text_of = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::runtime);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text_of([] { cudnn_device("{}"); }),
              ::testing::AllOf(HasSubstr("cudnnBackend"), HasSubstr("properties of a GPU"),
                               HasSubstr("CUDNN_STATUS")));
  EXPECT_THAT(text_of([] {
                CudnnGraph().tensor(1, {-1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT);
              }),
              HasSubstr("cudnnBackendFinalize(a tensor)"));
}

TEST_F(CudnnPlans, AGraphWithoutAnEngineIsNamed) {
  const AttentionShape shape{1, 128, 2, 2, 12, false};  // heads of 24 bytes
  try {
    plans(AttentionPass::forward, shape);
    FAIL() << "a plan was found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("attention forward (1 rows of 128 tokens, 2 heads, 2 key heads of 12"));
  }
}

}  // namespace
}  // namespace holdfast::cuda
