// What collectives of several groups do to each other: nothing, except where one is to start after another.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/slice.hpp"
#include "tests/support/mpi_main.hpp"

namespace {
std::atomic<long> allocations{0};
}  // namespace
// What this program allocates from C++: our part, not MPI's. Not inlined: g++ 12 warns about half a pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort asks so.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace holdfast::comm {
namespace {

/// Adds what comes to `sum`, in order; the first of all is copied.
class Adder : public OrderedReducer {
 public:
  explicit Adder(std::vector<std::vector<float>>& sums) : sums_(sums) {}
  void reduce(tensor::Stream&, int tensor, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override {
    float* sum = sums_[tensor].data() + first;
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const auto* source = static_cast<const float*>(sources[s]);
      for (std::int64_t i = 0; i < count; ++i) sum[i] = fresh && s == 0 ? source[i] : sum[i] + source[i];
    }
  }
  bool fresh = true;

 private:
  std::vector<std::vector<float>>& sums_;
};

/// Copies the sum of all sources to a place in symmetric memory.
class SumTo : public OrderedReducer {
 public:
  explicit SumTo(float* to) : to_(to) {}
  void reduce(tensor::Stream&, int, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override {
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (const void* source : sources) sum += static_cast<const float*>(source)[i];
      to_[first + i] = sum;
    }
  }

 private:
  float* to_;
};

class GroupsTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Communicator> world_ = tests::session().world({std::chrono::seconds(60), GetParam()});
  std::span<std::byte> memory_ = world_->symmetric_memory(16 << 20);
  const int rank_ = world_->rank(), size_ = world_->size();
  float* floats(std::int64_t offset) { return reinterpret_cast<float*>(memory_.data()) + offset; }
};
INSTANTIATE_TEST_SUITE_P(Nodes, GroupsTest, ::testing::Values(0, 1, 2),
                         [](const auto& of) { return "ranks_per_node_" + std::to_string(of.param); });

// Every rank enqueues its groups' collectives in another order: with one queue for all they would wait for
// each other in a circle.
TEST_P(GroupsTest, GroupsDoNotWaitForEachOther) {
  auto rows = world_->split(rank_ / 2, rank_, "row"), columns = world_->split(rank_ % 2, rank_, "column");
  Communicator* groups[] = {world_.get(), rows.get(), columns.get()};
  constexpr int rounds = 40;
  constexpr std::int64_t n = 5003, room = 8192;
  const auto tensor = [&](int g, int round) {
    return Extent{floats((g * rounds + round) * room), n, slice_stride(n, groups[g]->size()), DType::fp32};
  };
  for (int g = 0; g < 3; ++g)
    for (int round = 0; round < rounds; ++round) {
      const Extent mine = tensor(g, round);
      const std::int64_t first = groups[g]->rank() * mine.part;
      for (std::int64_t i = first; i < std::min(n, first + mine.part); ++i)
        static_cast<float*>(mine.data)[i] = static_cast<float>(i + g + 10 * round);
    }
  std::vector<Event> events;
  for (int k = 0; k < 3; ++k) {
    const int g = (k + rank_) % 3;
    for (int round = 0; round < rounds; ++round) {
      const Extent mine = tensor(g, round);
      events.push_back(groups[g]->all_gather({&mine, 1}));
    }
  }
  for (const Event& event : events) event.wait();
  std::int64_t wrong = 0;
  for (int g = 0; g < 3; ++g)
    for (int round = 0; round < rounds; ++round)
      for (std::int64_t i = 0; i < n; ++i)
        wrong +=
            static_cast<const float*>(tensor(g, round).data)[i] != static_cast<float>(i + g + 10 * round);
  EXPECT_EQ(wrong, 0);
}

TEST_P(GroupsTest, MoreCanBeUnderWayThanTheQueueHolds) {
  constexpr std::int64_t n = 257;
  const Extent tensor{floats(0), n, slice_stride(n, size_), DType::fp32};
  for (std::int64_t i = 0; i < n; ++i) floats(0)[i] = static_cast<float>(i);
  std::vector<float> sum(n);
  SumTo reducer(sum.data());
  Event last;
  for (int round = 0; round < 400; ++round)
    last = round % 3 == 0 ? world_->ordered_reduce_scatter({&tensor, 1}, reducer)
                          : world_->all_gather({&tensor, 1});
  last.wait();
  const std::int64_t first = std::min(n, rank_ * tensor.part);
  for (std::int64_t i = first; i < std::min(n, first + tensor.part); ++i)
    ASSERT_EQ(sum[i - first], static_cast<float>(i) * static_cast<float>(size_));
}

TEST_P(GroupsTest, NothingIsAllocatedOnceTheLongestListHasBeenSeen) {
  std::vector<Extent> tensors;
  for (int t = 0; t < 20; ++t)
    tensors.push_back({floats(t * 4096), 1000 + t, slice_stride(1000 + t, size_), DType::fp32});
  std::vector<float> sum(4096);
  SumTo reducer(sum.data());
  const std::vector<int> sums_of(size_, 2);
  const auto step = [&](std::size_t count) {
    const auto list = std::span(tensors).first(count);
    std::uint64_t words[] = {1, 2};
    world_->all_gather(list);
    world_->ordered_reduce_scatter(list, reducer);
    world_->exchange_partial_sums(list, 100'000, sums_of, reducer).wait();
    world_->all_reduce(words, Scalar::sum);
  };
  step(20);
  const long before = allocations;
  for (int i = 0; i < 70; ++i) step(as_size(i) % 20 + 1);  // more than the queue has places
  EXPECT_EQ(allocations, before);
}

// A reduction writes what one of another group takes over, which a gather spreads, which the next one reads:
// ten times, with no wait in between.
TEST_P(GroupsTest, WhatStartsAfterAnEventSeesItsResults) {
  constexpr std::int64_t n = 30'011;
  const std::int64_t part = slice_stride(n, size_);
  const Extent micro_batch{floats(0), n, part, DType::fp32};
  std::fill_n(floats(0), n, 1.0f);
  std::vector<float> mine(part);
  SumTo adds(mine.data());
  class TakeOver : public OrderedReducer {
   public:
    TakeOver(const std::vector<float>& from, float* to) : from_(from), to_(to) {}
    void reduce(tensor::Stream&, int, std::int64_t first, std::int64_t count,
                std::span<const void* const>) override {
      std::memcpy(to_ + first, from_.data() + first, as_size(count) * sizeof(float));
    }

   private:
    const std::vector<float>& from_;
    float* to_;
  } take_over(mine, floats(rank_ * part));
  auto alone = world_->split(rank_, 0, "alone");
  const std::int64_t own = std::clamp<std::int64_t>(n - rank_ * part, 0, part);
  const Extent own_part{floats(rank_ * part), own, std::max<std::int64_t>(own, 1), DType::fp32};
  Event ready;
  const int rounds = size_ == 1 ? 5 : 10;
  for (int round = 0; round < rounds; ++round) {
    const Event reduced = world_->ordered_reduce_scatter({&micro_batch, 1}, adds, ready);
    const Event taken = alone->ordered_reduce_scatter({&own_part, 1}, take_over, reduced);
    ready = world_->all_gather({&micro_batch, 1}, taken);
  }
  ready.wait();
  float expected = 1;
  for (int round = 0; round < rounds; ++round) expected *= static_cast<float>(size_);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) wrong += floats(0)[i] != expected;
  EXPECT_EQ(wrong, 0);
}

// Numbers of very different size that cancel: any other order of additions gives other bits. 12
// micro-batches, dealt to the members in turn (numerics rule 4), give the bits of one rank that adds them one
// after another.
TEST_P(GroupsTest, TheSumOfMicroBatchesDoesNotDependOnTheLayout) {
  constexpr std::int64_t sizes[] = {1, 63, 65, 10'007}, micro_batches = 12;
  const auto element = [](std::int64_t micro_batch, std::int64_t t, std::int64_t i) {
    std::uint64_t h = static_cast<std::uint64_t>((micro_batch * 4 + t) * 100'003 + i) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
    const auto exponent = static_cast<std::uint32_t>(97 + (h >> 40) % 44);
    return i % 97 == 0 ? -0.0f
                       : std::bit_cast<float>(static_cast<std::uint32_t>(h & 0x807fffff) | exponent << 23);
  };
  std::vector<Extent> tensors;
  std::vector<std::vector<float>> sums;
  std::int64_t at = 0;
  for (std::int64_t n : sizes) {
    tensors.push_back({floats(at), n, slice_stride(n, size_), DType::fp32});
    at += tensors.back().part * size_;
    sums.emplace_back(as_size(tensors.back().part));
  }
  Adder adder(sums);
  ASSERT_EQ(micro_batches % size_, 0);
  for (std::int64_t step = 0; step < micro_batches / size_; ++step) {
    for (std::size_t t = 0; t < tensors.size(); ++t)
      for (std::int64_t i = 0; i < tensors[t].elements; ++i)
        static_cast<float*>(tensors[t].data)[i] =
            element(step * size_ + rank_, static_cast<std::int64_t>(t), i);
    world_->ordered_reduce_scatter(tensors, adder).wait();  // then the micro-batch may be overwritten
    adder.fresh = false;
  }
  std::int64_t wrong = 0, differs_in_other_order = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (std::int64_t k = 0; k < tensors[t].part && rank_ * tensors[t].part + k < tensors[t].elements; ++k) {
      const std::int64_t i = rank_ * tensors[t].part + k;
      float sum = element(0, static_cast<std::int64_t>(t), i),
            backwards = element(micro_batches - 1, static_cast<std::int64_t>(t), i);
      for (std::int64_t micro_batch = 1; micro_batch < micro_batches; ++micro_batch) {
        sum += element(micro_batch, static_cast<std::int64_t>(t), i);
        backwards += element(micro_batches - 1 - micro_batch, static_cast<std::int64_t>(t), i);
      }
      wrong += std::bit_cast<std::uint32_t>(sum) != std::bit_cast<std::uint32_t>(sums[t][k]);
      differs_in_other_order += sum != backwards;
    }
  EXPECT_EQ(wrong, 0);
  if (tensors.back().part * rank_ < tensors.back().elements) {
    EXPECT_GT(differs_in_other_order, 0) << "the numbers cannot tell orders apart";
  }
}

}  // namespace
}  // namespace holdfast::comm
