// Every operation against a plain reference, on every world size (mpirun -n 1, 2, 3, 4) and with the ranks on
// one node, on nodes of two and on nodes of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/slice.hpp"
#include "tests/support/mpi_main.hpp"

namespace holdfast::comm {
namespace {

using tensor::Bf16;

constexpr std::int64_t symmetric_bytes = 24 << 20;

std::unique_ptr<Communicator> world_of(int ranks_per_node) {
  return tests::session().world({std::chrono::seconds(60), ranks_per_node});
}

/// Exactly a bf16, and another one for every member, array and element nearby.
float value(int member, int array, std::int64_t i) {
  return static_cast<float>((i * 7 + member * 31 + array * 67) % 251 - 125);
}

void put(const Extent& tensor, std::int64_t i, float x) {
  if (tensor.type == DType::fp32)
    static_cast<float*>(tensor.data)[i] = x;
  else
    static_cast<Bf16*>(tensor.data)[i] = tensor::to_bf16(x);
}
float get(DType type, const void* data, std::int64_t i) {
  return type == DType::fp32 ? static_cast<const float*>(data)[i]
                             : tensor::to_float(static_cast<const Bf16*>(data)[i]);
}

/// Hands out pieces of the symmetric memory.
class Symmetric {
 public:
  explicit Symmetric(Communicator& world) : left_(world.symmetric_memory(symmetric_bytes)) {}
  Extent tensor(std::int64_t elements, int members, DType type, int arrays = 1) {
    const std::int64_t part = slice_stride(elements, members);
    const auto bytes = as_size(part * members * bytes_of(type) * arrays);
    Extent out{left_.data(), elements, part, type};
    left_ = left_.subspan(bytes);
    return out;
  }

 private:
  std::span<std::byte> left_;
};

std::int64_t part_of(const Extent& tensor, int member) {
  return std::clamp<std::int64_t>(tensor.elements - member * tensor.part, 0, tensor.part);
}

/// Checks what comes against value(), and that every element comes once.
class CheckingReducer : public OrderedReducer {
 public:
  CheckingReducer(std::span<const Extent> tensors, int rank, std::vector<int> arrays_of)
      : tensors_(tensors.begin(), tensors.end()), rank_(rank), arrays_of_(std::move(arrays_of)) {
    for (const Extent& tensor : tensors_) seen_.emplace_back(as_size(part_of(tensor, rank_)), 0);
  }
  void reduce(tensor::Stream&, int tensor, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override {
    const auto t = as_size(tensor);
    if (count <= 0 || count > Communicator::largest_reduction) ++wrong;
    std::size_t source = 0;
    for (std::size_t member = 0; member < arrays_of_.size(); ++member)
      for (int k = 0; k < arrays_of_[member]; ++k, ++source)
        for (std::int64_t i = 0; i < count; ++i)
          wrong += source >= sources.size() ||
                   get(tensors_[t].type, sources[source], i) !=
                       value(static_cast<int>(member), k, rank_ * tensors_[t].part + first + i + tensor);
    wrong += source != sources.size();
    for (std::int64_t i = first; i < first + count; ++i) ++seen_[t][i];
  }
  bool complete() const {
    return wrong == 0 && std::all_of(seen_.begin(), seen_.end(), [](const std::vector<int>& times) {
             return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
           });
  }
  std::int64_t wrong = 0;

 private:
  std::vector<Extent> tensors_;
  int rank_;
  std::vector<int> arrays_of_;
  std::vector<std::vector<int>> seen_;
};

class CommunicatorTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Communicator> world_ = world_of(GetParam());
  Symmetric memory_{*world_};
  const int rank_ = world_->rank(), size_ = world_->size();
  const std::int64_t sizes_[7] = {0, 1, 63, 64, 65, 10007, 100003};
};
INSTANTIATE_TEST_SUITE_P(Nodes, CommunicatorTest, ::testing::Values(0, 1, 2),
                         [](const auto& of) { return "ranks_per_node_" + std::to_string(of.param); });

TEST_P(CommunicatorTest, WhatBulkOperationsAwaitedIsToldByNode) {
  if (size_ == 1) GTEST_SKIP();
  const int per_node = GetParam() > 0 ? GetParam() : size_;
  const auto awaited = [&] {
    std::vector<std::int64_t> ns(as_size(size_), -1);
    EXPECT_TRUE(world_->awaited(ns));
    return ns;
  };
  const auto before = awaited();
  for (int rank = 0; rank < size_; ++rank)
    EXPECT_EQ(before[rank], rank % per_node != 0 || rank / per_node == rank_ / per_node ? -1 : 0) << rank;
  world_->barrier();
  std::uint64_t words[] = {1};
  world_->all_reduce(words, Scalar::sum);
  EXPECT_EQ(awaited(), before) << "small ones do not count";
  const Extent tensor = memory_.tensor(100'003, size_, DType::fp32);
  const Extent tensors[] = {tensor};
  world_->all_gather(tensors).wait();
  const auto gathered = awaited();
  CheckingReducer reducer({tensors, 1}, rank_, std::vector<int>(as_size(size_), 1));
  world_->ordered_reduce_scatter(tensors, reducer).wait();
  const auto reduced = awaited();
  for (int rank = 0; rank < size_; ++rank) {
    if (before[rank] < 0) {
      EXPECT_EQ(reduced[rank], -1);
    } else {
      EXPECT_GT(gathered[rank], 0);
      EXPECT_GT(reduced[rank], gathered[rank]);
    }
  }
}

TEST_P(CommunicatorTest, AllGatherFillsInThePartsOfOthers) {
  for (DType type : {DType::fp32, DType::bf16}) {
    std::vector<Extent> tensors;
    std::int64_t own_bytes = 0;
    for (std::int64_t n : sizes_) {
      tensors.push_back(memory_.tensor(n, size_, type));
      const Extent& tensor = tensors.back();
      for (std::int64_t i = 0; i < tensor.part * size_; ++i) put(tensor, i, -1000);
      for (std::int64_t i = 0; i < part_of(tensor, rank_); ++i)
        put(tensor, rank_ * tensor.part + i, value(0, 0, rank_ * tensor.part + i));
      own_bytes += part_of(tensor, rank_) * bytes_of(type);
    }
    const std::int64_t before = world_->wire().all_gather;
    world_->all_gather(tensors).wait();
    std::int64_t wrong = 0;
    for (const Extent& tensor : tensors)
      for (std::int64_t i = 0; i < tensor.part * size_; ++i)
        wrong +=
            get(type, tensor.data, i) != (i < tensor.elements ? value(0, 0, i) : -1000);  // padding stays
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(world_->wire().all_gather - before, own_bytes * (size_ - 1));
  }
}

TEST_P(CommunicatorTest, GradientsArriveInOrderOfMembersAndEachElementOnce) {
  for (DType type : {DType::fp32, DType::bf16}) {
    std::vector<Extent> gradients;
    std::int64_t bytes = 0;
    for (std::int64_t n : sizes_) {
      gradients.push_back(memory_.tensor(n, size_, type));
      const auto t = static_cast<std::int64_t>(gradients.size()) - 1;
      for (std::int64_t i = 0; i < n; ++i) put(gradients.back(), i, value(rank_, 0, i + t));
      bytes += (n - part_of(gradients.back(), rank_)) * bytes_of(type);
    }
    CheckingReducer reducer(gradients, rank_, std::vector<int>(size_, 1));
    const std::int64_t before = world_->wire().ordered_reduce_scatter;
    world_->ordered_reduce_scatter(gradients, reducer).wait();
    EXPECT_TRUE(reducer.complete()) << reducer.wrong;
    EXPECT_EQ(world_->wire().ordered_reduce_scatter - before, bytes);
  }
}

TEST_P(CommunicatorTest, NodesArriveInOrderThoughMembersHoldDifferentNumbersOfThem) {
  std::vector<int> sums_of;
  for (int m = 0; m < size_; ++m) sums_of.push_back(m == 1 ? 0 : 1 + m % 3);
  std::vector<Extent> tensors;
  std::int64_t bytes = 0, stride = 0;
  for (std::int64_t n : sizes_) {
    tensors.push_back(memory_.tensor(n, size_, DType::fp32));
    stride += tensors.back().part * size_;
    bytes += (n - part_of(tensors.back(), rank_)) * 4 * sums_of[rank_];
  }
  memory_.tensor(stride, 1, DType::fp32, 2);  // the second and third partial sum lie behind
  for (int k = 0; k < sums_of[rank_]; ++k)
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      Extent there = tensors[t];
      there.data = static_cast<float*>(there.data) + k * stride;
      for (std::int64_t i = 0; i < there.elements; ++i)
        put(there, i, value(rank_, k, i + static_cast<std::int64_t>(t)));
    }
  CheckingReducer reducer(tensors, rank_, sums_of);
  world_->exchange_partial_sums(tensors, stride, sums_of, reducer).wait();
  EXPECT_TRUE(reducer.complete()) << reducer.wrong;
  EXPECT_EQ(world_->wire().exchange_partial_sums, bytes);
}

TEST_P(CommunicatorTest, IntegersAddModuloTwoTo64AndMaximaAreMaxima) {
  const auto rank = static_cast<std::uint64_t>(rank_), size = static_cast<std::uint64_t>(size_);
  std::uint64_t sums[] = {~std::uint64_t{0}, rank}, maxima[] = {rank};
  world_->all_reduce(sums, Scalar::sum);
  world_->all_reduce(maxima, Scalar::max);
  EXPECT_EQ(sums[0], std::uint64_t{0} - size);
  EXPECT_EQ(sums[1], size * (size - 1) / 2);
  EXPECT_EQ(maxima[0], size - 1);
  std::vector<std::uint64_t> many(10'007);  // several boxes
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i * (rank + 1);
  world_->all_reduce(many, Scalar::sum);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < many.size(); ++i) wrong += many[i] != i * (size * (size + 1) / 2);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(world_->wire().all_reduce, size_ == 1 ? 0 : (2 + 1 + 10'007) * 8);
}

TEST_P(CommunicatorTest, TextOfAnyLengthReachesEverybody) {
  const int last = size_ - 1;
  EXPECT_EQ(broadcast_text(*world_, rank_ == last ? "from the last rank" : "", last), "from the last rank");
  EXPECT_EQ(broadcast_text(*world_, "", 0), "");
  std::string text(100'003, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  for (int root = 0; root < size_; ++root)
    EXPECT_EQ(broadcast_text(*world_, rank_ == root ? text : "other", root), text);
  EXPECT_EQ(world_->wire().broadcast, size_ == 1 ? 0
                                                 : (rank_ == last ? 8 + 18 : 0) + (rank_ == 0 ? 8 : 0) + 8 +
                                                       static_cast<std::int64_t>(text.size()));
}

TEST_P(CommunicatorTest, GroupsAreOrderedByKeyAndAGroupOfOneWorks) {
  auto alone = world_->split(rank_, 0, "alone");
  EXPECT_EQ(alone->size(), 1);
  const Extent gradient = memory_.tensor(100, 1, DType::fp32);
  for (std::int64_t i = 0; i < 100; ++i) put(gradient, i, value(0, 0, i));
  CheckingReducer reducer({&gradient, 1}, 0, {1});
  alone->ordered_reduce_scatter({&gradient, 1}, reducer).wait();
  EXPECT_TRUE(reducer.complete());
  EXPECT_EQ(alone->wire().total(), 0);
  auto reversed = world_->split(0, -rank_, "reversed");
  EXPECT_EQ(reversed->rank(), size_ - 1 - rank_);
  std::uint64_t word[] = {static_cast<std::uint64_t>(rank_)};
  reversed->broadcast(std::as_writable_bytes(std::span(word)), 0);
  EXPECT_EQ(word[0], static_cast<std::uint64_t>(size_ - 1));
  reversed->barrier();
}

}  // namespace
}  // namespace holdfast::comm
