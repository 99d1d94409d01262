// What is said, and to whom, when a rank stays away, does something else, or is given up, while GPUs wait for
// each other; and that nobody takes for a result what comes after a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <thread>

#include "src/base/slice.hpp"
#include "src/cuda/comm/bulk_group.hpp"
#include "src/cuda/comm/peer_flags.hpp"
#include "tests/cuda/comm/gpu_ranks.hpp"

namespace holdfast::cuda::test {
namespace {

using comm::Extent;
using tensor::DType;
using tensor::Event;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// `world_` has a short time limit; `together_` holds the test's ranks together while it breaks.
class Failures : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (size_ == 1) GTEST_SKIP() << "nobody to wait for";
    together_ = tests::session().world(std::chrono::seconds(60));
    GpuRank::Options options;
    options.ranks_per_node = GetParam().ranks_per_node;
    options.limit = std::chrono::seconds(2);
    gpu_ = std::make_unique<GpuRank>(options);
    world_ = gpu_->world();
    memory_ = world_->symmetric_memory(1 << 20);
    together_->barrier();
  }
  void TearDown() override {
    if (together_) together_->barrier();
    world_.reset();
    gpu_.reset();
  }
  Extent tensor() const { return {memory_.data(), 6400, slice_stride(6400, size_), DType::fp32}; }
  bool peers() const { return GetParam().ranks_per_node == 0; }
  static std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

  const int rank_ = tests::session().rank(), size_ = tests::session().size(), away_ = size_ - 1;
  std::unique_ptr<comm::Communicator> together_, world_;
  std::unique_ptr<GpuRank> gpu_;
  std::span<std::byte> memory_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, Failures, ::testing::Values(Case{"peers", 0}, Case{"nccl", 1}),
                         [](const auto& of) { return of.param.name; });

class Nothing final : public comm::OrderedReducer {
 public:
  void reduce(tensor::Stream&, int, std::int64_t, std::int64_t, std::span<const void* const>) override {}
};

TEST_P(Failures, WhoHasNotComeIsNamedAndEverybodyHears) {
  const auto gathers = world_->split(0, rank_, "the gathers"), later = world_->split(0, rank_, "the later");
  const Extent all[] = {tensor()};
  if (rank_ != away_) {
    const Event gather = gathers->all_gather(all);
    const Event never = later->all_gather(all, gather);
    gpu_->compute.wait(never);
    const std::string first = error_of([&] { gpu_->compute.record().wait(); });
    const std::string timed_out = "over the gathers did not finish within 2 s (";
    if (peers()) {
      EXPECT_THAT(first, HasSubstr("all-gather #1 " + timed_out + rank_text(away_) + " has not arrived)"));
    } else {
      EXPECT_THAT(first, HasSubstr(timed_out + "NCCL does not say which of ranks 0, 1"));
    }
    // Broken from here on, for every call and every wait, and for what was to start afterwards.
    EXPECT_EQ(error_of([&] { gather.wait(); }), first);
    EXPECT_EQ(error_of([&] { gathers->all_gather(all); }), first);
    EXPECT_EQ(error_of([&] { never.wait(); }), first);
    together_->barrier();
  } else {
    together_->barrier();  // the others have given up
    // What the others had sent before may still come, and is good.
    const std::string mine = error_of([&] {
      gathers->all_gather(all).wait();
      gathers->all_gather(all).wait();
    });
    if (peers()) {
      EXPECT_THAT(mine,
                  ContainsRegex("has given up the (gathers|later) .all-gather #1 over the gathers did not "
                                "finish within 2 s .rank [0-9] has not arrived"));
    } else {
      EXPECT_THAT(mine, HasSubstr("did not finish within 2 s"));
    }
  }
}

TEST_P(Failures, MembersThatDoDifferentThingsAreTold) {
  const auto group = world_->split(0, rank_, "the group");
  const Extent whole[] = {tensor()};
  Nothing reducer;
  const std::string error = error_of([&] {
    (rank_ == away_ ? group->all_gather(whole) : group->ordered_reduce_scatter(whole, reducer)).wait();
  });
  if (peers()) {
    EXPECT_THAT(error, AnyOf(HasSubstr("the members of the group do not do the same"),
                             HasSubstr("has given up the group")));
  } else {
    EXPECT_THAT(error, AnyOf(HasSubstr("NCCL has failed in the group"), HasSubstr("did not finish within")));
  }
}

TEST_P(Failures, AnExceptionIsNotHeldUpByItsCommunicators) {
  auto group = world_->split(0, rank_, "the group");
  const Extent whole[] = {tensor()};
  if (rank_ == away_) {
    together_->barrier();
    // What the others had sent before may still come, and is good.
    const std::string error = error_of([&] {
      group->all_gather(whole).wait();
      group->all_gather(whole).wait();
    });
    if (peers()) {
      EXPECT_THAT(error, HasSubstr("has given up the group"));
    }
    EXPECT_NE(error, "no error");
    return;
  }
  try {
    const auto gone = std::move(group);
    gone->all_gather(whole);
    throw std::runtime_error("something else");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "something else");
  }
  EXPECT_THAT(gpu_->watch.failure().value().what(), HasSubstr("given up the group"));
  together_->barrier();
}

TEST_P(Failures, AFolderThatThrowsEndsTheGroupForAll) {
  class Thrower final : public comm::OrderedReducer {
    void reduce(tensor::Stream&, int, std::int64_t, std::int64_t, std::span<const void* const>) override {
      throw std::runtime_error("no room for it");
    }
  } thrower;
  Nothing reducer;
  const auto group = world_->split(0, rank_, "the group");
  const Extent whole[] = {tensor()};
  if (rank_ == away_) {
    EXPECT_THAT(error_of([&] { group->ordered_reduce_scatter(whole, thrower); }),
                ContainsRegex("ordered reduce-scatter #[0-9]+ over the group failed .no room for it"));
  } else {
    const std::string error = error_of([&] {
      group->ordered_reduce_scatter(whole, reducer).wait();
      group->all_gather(whole).wait();
    });
    EXPECT_THAT(error, AnyOf(HasSubstr("has given up the group"), HasSubstr("did not finish within")));
  }
}

/// Ranks 0 and 1 are a shard group, 2 and 3 another; 0 and 2 are replicas. Rank 1 stays away: what rank 0
/// then sends to rank 2 is no result, and rank 2 must not take it for one.
TEST_P(Failures, NoResultsOfARankThatHasFailedElsewhere) {
  if (size_ != 4) GTEST_SKIP() << "wants two groups of two";
  const auto shards = world_->split(rank_ / 2, rank_, "the shards"),
             replicas = world_->split(rank_ % 2, rank_, "the replicas");
  const Extent whole[] = {{memory_.data(), 6400, 3200, DType::fp32}};
  if (rank_ == 1) {
    together_->barrier();
    return;
  }
  // So that rank 0 lets go while rank 2 waits for it; else this shows less.
  if (rank_ != 0) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const std::string error = error_of([&] {
    tensor::Event done;
    if (rank_ == 0) done = shards->all_gather(whole);
    if (rank_ != 3) replicas->all_gather(whole, done).wait();
    gpu_->compute.record().wait();
  });
  if (rank_ == 0) {
    EXPECT_THAT(error, AnyOf(HasSubstr("over the shards did not finish within 2 s"),
                             HasSubstr("rank 2 has given up the replicas")));
  }
  if (rank_ == 2 && peers()) {
    EXPECT_THAT(error, AnyOf(HasSubstr("rank 0 has given up the replicas"),
                             HasSubstr("over the replicas did not finish within 2 s")));
  }
  if (rank_ == 2) {
    EXPECT_NE(error, "no error");
  }
  together_->barrier();
}

TEST_P(Failures, WhatNcclFindsOutIsThrown) {
  if (peers()) GTEST_SKIP() << "no NCCL here";
  const auto group = world_->split(0, rank_, "the group");
  const Extent whole[] = {tensor()};
  group->all_gather(whole).wait();
  gpu_->nccl.fail("the group", "remote process exited or there was a network error");
  const std::string error = error_of([&] { group->all_gather(whole).wait(); });
  EXPECT_THAT(error,
              HasSubstr("NCCL has failed in the group (remote process exited or there was a network error)"));
  EXPECT_EQ(gpu_->nccl.aborts(), 1);
}

TEST_P(Failures, AGpuThatHasFailedIsNotWaitedFor) {
  const auto group = world_->split(0, rank_, "the group");
  const Extent whole[] = {tensor()};
  if (rank_ == away_) gpu_->runtime.fail("GPU 0 has failed: an uncorrectable memory error");
  const std::string error = error_of([&] { group->all_gather(whole).wait(); });
  // What it had sent before may still reach the others.
  if (rank_ == away_) {
    EXPECT_THAT(error, HasSubstr("an uncorrectable memory error"));
  }
}

TEST(PeerFlags, NumbersMayWrap) {
  if (tests::session().rank() != 0) return;
  sim::SimRuntime runtime;
  auto mine = comm::SharedMemory::create(PeerFlags::bytes_for(2));
  auto theirs = comm::SharedMemory::open(mine.handle());
  ASSERT_TRUE(theirs.has_value());
  PeerFlags first(runtime, std::move(mine), 2, 0), second(runtime, std::move(*theirs), 2, 1);
  CudaStream a(runtime, "a"), b(runtime, "b");
  constexpr auto ready = PeerFlags::Flag::ready, finished = PeerFlags::Flag::done;
  for (std::uint64_t n = 1; n < std::uint64_t{5} << 30; n += (std::uint64_t{1} << 30) - 1) {
    EXPECT_FALSE(first.heard(ready, 1, n)) << n;
    first.await(a.handle(), ready, 1, n);
    const Event done = a.record();
    runtime.progress(100);
    EXPECT_FALSE(done.passed()) << n;
    second.announce(b.handle(), ready, n);
    done.wait();
    EXPECT_TRUE(first.heard(ready, 1, n) && first.heard(ready, 1, n - 1)) << n;
    EXPECT_FALSE(n < 1u << 31 && first.heard(finished, 1, n));
  }
}

TEST(PeerFlags, ARankThatLetsGoChangesItsOwnRowAlone) {
  if (tests::session().rank() != 0) return;
  sim::SimRuntime runtime;
  auto mine = comm::SharedMemory::create(PeerFlags::bytes_for(2));
  auto theirs = comm::SharedMemory::open(mine.handle());
  PeerFlags first(runtime, std::move(mine), 2, 0), second(runtime, std::move(*theirs), 2, 1);
  CudaStream a(runtime, "a");
  first.await(a.handle(), PeerFlags::Flag::ready, 1, 5);
  first.await(a.handle(), PeerFlags::Flag::done, 1, 5);
  const Event done = a.record();
  runtime.progress(100);
  EXPECT_FALSE(done.passed());
  first.release(5);
  done.wait();
  EXPECT_FALSE(second.heard(PeerFlags::Flag::ready, 0, 1) || second.heard(PeerFlags::Flag::done, 0, 1));
}

TEST(PeerFlags, TheFirstObituaryCountsAndPostsAreForgotten) {
  if (tests::session().rank() != 0) return;
  sim::SimRuntime runtime;
  auto mine = comm::SharedMemory::create(PeerFlags::bytes_for(2));
  auto theirs = comm::SharedMemory::open(mine.handle());
  PeerFlags first(runtime, std::move(mine), 2, 0), second(runtime, std::move(*theirs), 2, 1);
  EXPECT_FALSE(first.posted(1, 7).has_value());
  second.post(7, 42);
  EXPECT_EQ(first.posted(1, 7), 42u);
  EXPECT_FALSE(first.posted(0, 7).has_value());
  second.post(7 + 2 * BulkGroup::places, 43);
  EXPECT_FALSE(first.posted(1, 7).has_value());
  EXPECT_FALSE(first.obituary().has_value());
  second.give_up("the first reason");
  first.give_up("the second");
  EXPECT_EQ(first.obituary()->member, 1);
  EXPECT_EQ(first.obituary()->why, "the first reason");
}

}  // namespace
}  // namespace holdfast::cuda::test
