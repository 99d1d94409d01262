#include "src/cuda/kernels/rope.hpp"

#include <gtest/gtest.h>

#include "tests/cuda/same_bits.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

using test::DeviceArray;
using test::rows_of;

template <class Element, class TableElement>
struct RopeKind {
  using T = Element;
  using Table = TableElement;
};

template <class K>
class RopeOnGpu : public ::testing::Test {
 protected:
  using T = typename K::T;
  using Table = typename K::Table;
  struct Shape {
    int heads, kv_heads, head_size, sequence, rows;
    std::int64_t gap = 0, first = 0;  ///< elements behind every row, and before the first one
    bool documents = false, backward = false;
    int rotary = 0;  ///< elements of a head that are turned; 0: all
    std::int64_t half() const { return (rotary > 0 ? rotary : head_size) / 2; }
  };

  /// Everything of the buffer afterwards, so that what is not turned shows too.
  static std::vector<T> on_gpu(const Shape& s, const std::vector<T>& x) {
    DeviceArray<T> qkv(x);
    const auto [cosine, sine] = tables(s);
    const DeviceArray<Table> device_cosine(cosine), device_sine(sine);
    const std::vector<std::int32_t> start = starts(s);
    const DeviceArray<std::int32_t> device_start(start);
    rope(test::gpu(), test::stream(),
         call(s, qkv.data(), device_cosine.data(), device_sine.data(),
              s.documents ? device_start.data() : nullptr));
    return qkv.download();
  }
  static std::vector<T> on_cpu(const Shape& s, std::vector<T> x) {
    const auto [cosine, sine] = tables(s);
    const std::vector<std::int32_t> start = starts(s);
    tensor::InlineStream stream;
    kernels::make_cpu_kernels(1)->rope(
        stream, call(s, x.data(), cosine.data(), sine.data(), s.documents ? start.data() : nullptr));
    return x;
  }
  static std::vector<T> input(const Shape& s) {
    return test::random_elements<T>(s.first + std::int64_t{s.sequence} * s.rows * (columns(s) + s.gap), 7);
  }

 private:
  static std::int64_t columns(const Shape& s) { return (s.heads + 2 * s.kv_heads) * s.head_size; }
  static kernels::Rope call(const Shape& s, T* qkv, const Table* cosine, const Table* sine,
                            const std::int32_t* start) {
    kernels::Rope r;
    r.qkv = rows_of(qkv + s.first, std::int64_t{s.sequence} * s.rows, columns(s), columns(s) + s.gap);
    r.heads = s.heads;
    r.kv_heads = s.kv_heads;
    r.head_size = s.head_size;
    r.sequence = s.sequence;
    const std::int64_t half = s.half();
    r.cosine = rows_of(cosine, s.sequence, half, half);
    r.sine = rows_of(sine, s.sequence, half, half);
    r.documents.start = start;
    r.backward = s.backward;
    return r;
  }
  static std::pair<std::vector<Table>, std::vector<Table>> tables(const Shape& s) {
    const std::int64_t half = s.half();
    std::vector<Table> cosine(s.sequence * half), sine(cosine.size());
    kernels::rope_table(rows_of(cosine.data(), s.sequence, half, half),
                        rows_of(sine.data(), s.sequence, half, half), 10000);
    return {cosine, sine};
  }
  /// Documents of five tokens, and one that goes to the end of its row.
  static std::vector<std::int32_t> starts(const Shape& s) {
    std::vector<std::int32_t> start;
    for (int row = 0; row < s.rows; ++row)
      for (int t = 0; t < s.sequence; ++t) start.push_back(std::min(t / 5 * 5, (row + 1) * 5));
    return start;
  }
};
using RopeKinds = ::testing::Types<RopeKind<float, float>, RopeKind<float, Bf16>, RopeKind<Bf16, float>,
                                   RopeKind<Bf16, Bf16>>;
TYPED_TEST_SUITE(RopeOnGpu, RopeKinds);

TYPED_TEST(RopeOnGpu, HasTheBitsOfTheCpu) {
  // Halves of one, of odd, and of whole numbers of packs; more pairs than a block has threads.
  for (const int head_size : {2, 6, 16, 64, 126, 128})
    for (const bool documents : {false, true})
      for (const bool backward : {false, true}) {
        const typename TestFixture::Shape s{5, 2, head_size, 23, 2, 0, 0, documents, backward};
        const auto x = this->input(s);
        const auto got = this->on_gpu(s, x);
        EXPECT_EQ(test::difference(got, this->on_cpu(s, x)), "") << "head_size " << head_size;
        EXPECT_NE(test::difference(got, x), "") << "nothing was turned";
      }
}

TYPED_TEST(RopeOnGpu, TurnsAPartOfEachHead) {
  for (const auto& [head_size, rotary] : {std::pair{128, 96}, {128, 32}, {64, 6}, {20, 16}, {6, 4}})
    for (const bool backward : {false, true}) {
      const typename TestFixture::Shape s{5, 2, head_size, 23, 2, 0, 0, true, backward, rotary};
      const auto x = this->input(s);
      const auto got = this->on_gpu(s, x);
      EXPECT_EQ(test::difference(got, this->on_cpu(s, x)), "") << head_size << ' ' << rotary;
      EXPECT_NE(test::difference(got, x), "") << "nothing was turned";
      EXPECT_EQ(to_float(got[head_size - 1]), to_float(x[head_size - 1])) << "behind what is turned";
    }
}

TYPED_TEST(RopeOnGpu, TurnsManyHeads) {
  const typename TestFixture::Shape s{32, 8, 128, 5, 1};
  const auto x = this->input(s);
  EXPECT_EQ(test::difference(this->on_gpu(s, x), this->on_cpu(s, x)), "");
}

TYPED_TEST(RopeOnGpu, LeavesGapsAloneAndTakesAnyAddress) {
  for (const std::int64_t gap : {0, 3, 8})
    for (const std::int64_t first : {0, 1, 8}) {
      const typename TestFixture::Shape s{2, 1, 32, 9, 1, gap, first};
      const auto x = this->input(s);
      EXPECT_EQ(test::difference(this->on_gpu(s, x), this->on_cpu(s, x)), "") << gap << ' ' << first;
    }
}

TEST(RopeOnGpuChecks, ATableThatIsTooShortIsAnError) {
  const DeviceArray<float> qkv(6 * 12), table(5 * 2);
  kernels::Rope r;
  r.qkv = rows_of(qkv.data(), 6, 12, 12);
  r.heads = 1;
  r.kv_heads = 1;
  r.head_size = 4;
  r.sequence = 6;
  r.cosine = r.sine = rows_of(table.data(), 5, 2, 2);
  EXPECT_THROW(rope(test::gpu(), test::stream(), r), std::logic_error);
}

}  // namespace
}  // namespace holdfast::cuda
