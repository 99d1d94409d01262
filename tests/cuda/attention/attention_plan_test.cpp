// How attention is cut into parts, and where their tensors lie.
#include "src/cuda/attention/attention_plan.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/base/error.hpp"

namespace holdfast::cuda {
namespace {

using ::testing::HasSubstr;

AttentionShape shape(std::int64_t rows, std::int64_t sequence, std::int64_t heads, std::int64_t kv_heads,
                     std::int64_t head_size) {
  return {rows, sequence, heads, kv_heads, head_size, false};
}

const std::vector<AttentionShape> shapes{
    shape(1, 4096, 32, 32, 128), shape(2, 4096, 32, 8, 128),  shape(1, 8192, 32, 8, 128),
    shape(4, 1024, 12, 12, 64),  shape(16, 1024, 25, 25, 64), shape(3, 1000, 6, 2, 64),
    shape(5, 77, 8, 1, 96),      shape(1, 1, 1, 1, 8),        shape(2, 32768, 8, 2, 128),
    shape(7, 2048, 40, 10, 128),
};

TEST(AttentionPlan, PartsCoverEveryHeadOfEveryRowOnce) {
  for (const AttentionShape& s : shapes)
    for (const auto& parts : {forward_parts(s), backward_parts(s, true), backward_parts(s, false)}) {
      std::map<std::pair<std::int64_t, std::int64_t>, int> times;
      for (const AttentionPart& p : parts)
        for (std::int64_t row = p.first_row; row < p.first_row + p.rows; ++row)
          for (std::int64_t h = p.first_kv_head; h < p.first_kv_head + p.kv_heads; ++h) ++times[{row, h}];
      EXPECT_EQ(times.size(), as_size(s.rows * s.kv_heads));
      for (const auto& [place, count] : times) {
        EXPECT_EQ(count, 1);
        EXPECT_LT(place.first, s.rows);
        EXPECT_LT(place.second, s.kv_heads);
      }
    }
}

TEST(AttentionPlan, GradientsOfScoresStayWithinTheBudgetWhereOneKeyHeadAllows) {
  for (const AttentionShape& s : shapes)
    for (const AttentionPart& p : backward_parts(s, true))
      EXPECT_TRUE(score_bytes(s, p) <= score_budget || (p.rows == 1 && p.kv_heads == 1)) << s.sequence;
}

TEST(AttentionPlan, PartsAreAsFewAndAsEqualAsTheBudgetAllows) {
  const auto sizes = [](const AttentionShape& s) {
    std::vector<std::pair<std::int64_t, std::int64_t>> list;
    for (const AttentionPart& p : backward_parts(s, true)) list.push_back({p.rows, p.kv_heads});
    return list;
  };
  using Sizes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(sizes(shape(1, 4096, 32, 32, 128)), Sizes(4, {1, 8}));
  EXPECT_EQ(sizes(shape(2, 4096, 32, 8, 128)), Sizes(8, {1, 2}));
  EXPECT_EQ(sizes(shape(1, 8192, 32, 8, 128)), Sizes(8, {1, 1}));  // 512 MiB each: less is not possible
  EXPECT_EQ(sizes(shape(8, 1024, 12, 12, 64)), Sizes(1, {8, 12}));
  EXPECT_EQ(sizes(shape(12, 1024, 12, 12, 64)), Sizes(2, {6, 12}));
  EXPECT_EQ(sizes(shape(1, 4096, 20, 20, 64)), Sizes({{1, 6}, {1, 7}, {1, 7}}));
}

TEST(AttentionPlan, WithoutStoredScoresAPartIsWholeRows) {
  EXPECT_EQ(backward_parts(shape(2, 4096, 32, 8, 128), false), (std::vector<AttentionPart>{{0, 2, 0, 8}}));
  EXPECT_EQ(backward_parts(shape(6, 4096, 32, 8, 128), false),
            (std::vector<AttentionPart>{{0, 3, 0, 8}, {3, 3, 0, 8}}));
}

TEST(AttentionPlan, ScoresAreCountedInBlocks) {
  const AttentionShape s = shape(2, 65, 6, 2, 64);
  EXPECT_EQ(score_bytes(s, {0, 2, 1, 1}), 2 * 3 * 128 * 128 * 2);
}

TEST(AttentionPlan, ScratchOfAPartDoesNotOverlap) {
  const AttentionShape s = shape(3, 77, 6, 2, 40);
  const AttentionPart part{1, 2, 0, 1};
  const std::int64_t numbers = 2 * 3 * 77;
  for (const bool deterministic : {true, false}) {
    const PartScratch scratch = backward_scratch(s, part, deterministic);
    EXPECT_GE(scratch.d_query_sums, scratch.mean + numbers * 4);
    EXPECT_GE(scratch.library, scratch.d_query_sums + (deterministic ? 0 : numbers * 40 * 4));
    EXPECT_EQ(scratch.library % 256, 0);
    EXPECT_EQ(scratch.d_query_sums % 256, 0);
  }
}

/// Every element of a placed tensor once.
template <class Work>
void for_elements(const Placement& p, const Work& work) {
  for (std::int64_t b = 0; b < p.dims[0]; ++b)
    for (std::int64_t h = 0; h < p.dims[1]; ++h)
      for (std::int64_t i = 0; i < p.dims[2]; ++i)
        for (std::int64_t c = 0; c < p.dims[3]; ++c)
          work(p.offset + b * p.strides[0] + h * p.strides[1] + i * p.strides[2] + c * p.strides[3], b, h, i,
               c);
}

TEST(AttentionPlan, PlacementsAreThoseOfTheMatrices) {
  const AttentionShape s = shape(3, 5, 6, 2, 8);
  const std::int64_t packed = 10 * 8, stride = packed + 16, width = 6 * 8;
  for (const AttentionPart& part : {AttentionPart{0, 3, 0, 2}, AttentionPart{1, 2, 1, 1}}) {
    const PartLayout layout(s, part);
    const std::int64_t first_head = part.first_kv_head * 3;
    const auto check = [&](const Placement& p, std::int64_t first_column, std::int64_t heads,
                           std::int64_t ld) {
      ASSERT_EQ(p.dims, (std::array<std::int64_t, 4>{part.rows, heads, 5, 8}));
      for_elements(p, [&](std::int64_t at, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c) {
        ASSERT_EQ(at, ((part.first_row + b) * 5 + i) * ld + first_column + h * 8 + c);
      });
    };
    check(layout.queries(stride), first_head * 8, part.kv_heads * 3, stride);
    check(layout.keys(stride), (6 + part.first_kv_head) * 8, part.kv_heads, stride);
    check(layout.values(stride), (8 + part.first_kv_head) * 8, part.kv_heads, stride);
    check(layout.outputs(width), first_head * 8, part.kv_heads * 3, width);
    for_elements(layout.log_sums(),
                 [&](std::int64_t at, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t) {
                   ASSERT_EQ(at, (first_head + h) * 15 + (part.first_row + b) * 5 + i);  // head * T + token
                 });
    for_elements(layout.starts(), [&](std::int64_t at, std::int64_t b, std::int64_t, std::int64_t i,
                                      std::int64_t) { ASSERT_EQ(at, (part.first_row + b) * 5 + i); });
  }
}

TEST(AttentionPlan, GradientsOfDifferentPartsShareNoElement) {
  AttentionShape s = shape(4, 3, 6, 3, 8);
  std::set<std::int64_t> written;
  std::size_t elements = 0;
  for (const std::int64_t budget : {std::int64_t{1}, std::int64_t{1} << 20}) {
    written.clear();
    elements = 0;
    for (const AttentionPart& part : backward_parts(s, true, budget)) {
      const PartLayout layout(s, part);
      for (const Placement& p : {layout.queries(96), layout.keys(96), layout.values(96)})
        for_elements(p, [&](std::int64_t at, auto...) { written.insert(at), ++elements; });
    }
    EXPECT_EQ(written.size(), elements);
    EXPECT_EQ(elements, 12u * 96u);  // all of d_qkv
  }
}

TEST(AttentionPlan, SpansEndBehindTheLastElement) {
  const PartLayout layout(shape(2, 5, 4, 2, 8), {1, 1, 1, 1});
  EXPECT_EQ(layout.keys(64).span_bytes(2), ((5 - 1) * 64 + 8) * 2);
  EXPECT_EQ(layout.keys(64).transposed().span_bytes(2), ((5 - 1) * 64 + 8) * 2);
  EXPECT_EQ(layout.log_sums().span_bytes(4), (10 + 5) * 4);
}

kernels::Attention call_of(std::int64_t tokens, int sequence, int heads, int kv_heads, int head_size) {
  kernels::Attention a;
  a.qkv.type = tensor::DType::bf16;
  a.qkv.rows = tokens;
  a.qkv.cols = (heads + 2 * kv_heads) * head_size;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_size = head_size;
  a.sequence = sequence;
  return a;
}

TEST(AttentionPlan, ReadsTheShapeOfACall) {
  kernels::Attention a = call_of(12, 4, 6, 2, 8);
  EXPECT_EQ(shape_of(a), shape(3, 4, 6, 2, 8));
  const std::int32_t start = 0;
  a.documents.start = &start;
  EXPECT_TRUE(shape_of(a).documents);
  EXPECT_THROW(shape_of(call_of(12, 5, 6, 2, 8)), std::logic_error);
  EXPECT_THROW(shape_of(call_of(12, 4, 6, 4, 8)), std::logic_error);
  a.qkv.cols += 8;
  EXPECT_THROW(shape_of(a), std::logic_error);
}

TEST(AttentionPlan, SaysWhatIsSupported) {
  for (const std::int64_t d : {8, 64, 80, 96, 128})
    EXPECT_NO_THROW(check_supported(shape(1, 5, 1, 1, d), tensor::DType::bf16));
  const auto refusal = [](std::int64_t d, tensor::DType type) {
    try {
      check_supported(shape(1, 5, 1, 1, d), type);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(64, tensor::DType::fp32), HasSubstr("precision.parameters = \"bf16\""));
  EXPECT_THAT(refusal(100, tensor::DType::bf16), HasSubstr("multiples of 8 up to 128"));
  EXPECT_THAT(refusal(256, tensor::DType::bf16), HasSubstr("multiples of 8 up to 128"));
}

}  // namespace
}  // namespace holdfast::cuda
