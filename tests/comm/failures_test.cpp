// What is said, and to whom, when a member stays away, does something else, or is given up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/slice.hpp"
#include "tests/support/mpi_main.hpp"

namespace holdfast::comm {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Ignore : public OrderedReducer {
 public:
  void reduce(tensor::Stream&, int, std::int64_t, std::int64_t, std::span<const void* const>) override {}
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::runtime);
    return error.what();
  }
  return "no error";
}

/// `world_` has a short time limit; `together_` holds the test's ranks together while it breaks.
class FailuresTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (tests::session().size() == 1) GTEST_SKIP() << "nobody to wait for";
    together_ = tests::session().world(std::chrono::seconds(60));
    world_ = tests::session().world(
        {.limit = std::chrono::seconds(2), .ranks_per_node = GetParam(), .explain = false});
    memory_ = world_->symmetric_memory(4 << 20);
    rank_ = world_->rank();
    size_ = world_->size();
    away_ = size_ - 1;
    together_->barrier();
  }
  void TearDown() override {
    if (together_) together_->barrier();
  }
  /// 3 MiB: a message of it cannot leave without being received.
  Extent tensor() const {
    constexpr std::int64_t n = 3 << 18;
    return {memory_.data(), n, slice_stride(n, size_), DType::fp32};
  }
  bool one_node() const { return GetParam() == 0 || GetParam() >= size_; }

  std::unique_ptr<Communicator> together_, world_;
  std::span<std::byte> memory_;
  int rank_ = 0, size_ = 1, away_ = 0;
  Ignore reducer_;
};
INSTANTIATE_TEST_SUITE_P(Nodes, FailuresTest, ::testing::Values(0, 1, 2),
                         [](const auto& of) { return "ranks_per_node_" + std::to_string(of.param); });

// Everything at once, so that the test waits for one time limit.
TEST_P(FailuresTest, WhoHasNotComeIsNamedAndOthersGoOn) {
  auto gathers = world_->split(0, rank_, "the gathers"),
       reductions = world_->split(0, rank_, "the reductions"), later = world_->split(0, rank_, "the later"),
       whole = world_->split(rank_ == away_, rank_, "those who are here");
  const std::string missing = "(rank " + std::to_string(away_) + " has not arrived)";
  const Extent all[] = {tensor()};
  if (rank_ != away_) {
    const Event gather = gathers->all_gather(all),
                reduction = reductions->ordered_reduce_scatter(all, reducer_),
                never = later->all_gather(all, gather);
    std::uint64_t word[] = {1};
    whole->all_reduce(word, Scalar::sum);
    EXPECT_EQ(word[0], static_cast<std::uint64_t>(size_ - 1)) << "no group waits for another";
    const std::string small = error_of([&] { world_->all_reduce(word, Scalar::sum); });
    const std::string first = error_of([&] { gather.wait(); });

    EXPECT_THAT(first, HasSubstr("all-gather #1 over the gathers did not finish within 2 s " + missing));
    EXPECT_THAT(
        error_of([&] { reduction.wait(); }),
        HasSubstr("ordered reduce-scatter #1 over the reductions did not finish within 2 s " + missing));
    EXPECT_THAT(small, ContainsRegex("all-reduce #[0-9]+ over the world did not finish"));
    if (one_node() || rank_ / GetParam() == away_ / GetParam())
      EXPECT_THAT(small, HasSubstr(missing));
    else  // of another node only its first rank is heard
      EXPECT_THAT(small, ::testing::AnyOf(HasSubstr("nothing has come from the node of rank"),
                                          HasSubstr("has arrived and waits for other nodes")));
    // Broken from here on, for every call and every wait, and for what was to start afterwards.
    EXPECT_EQ(error_of([&] { gather.wait(); }), first);
    EXPECT_EQ(error_of([&] { gathers->barrier(); }), first);
    EXPECT_EQ(error_of([&] { gathers->all_gather(all); }), first);
    EXPECT_EQ(error_of([&] { never.wait(); }), first);
    EXPECT_FALSE(gather.passed() || reduction.passed() || never.passed());
    whole->barrier();
  }
  together_->barrier();
}

TEST_P(FailuresTest, MembersThatDoDifferentThingsAreTold) {
  const Extent whole[] = {tensor()};
  const std::string error = error_of([&] {
    (rank_ == away_ ? world_->all_gather(whole) : world_->ordered_reduce_scatter(whole, reducer_)).wait();
  });
  if (one_node())
    EXPECT_THAT(error, HasSubstr("the members of the world do not do the same"));
  else
    EXPECT_THAT(error, Not(HasSubstr("no error")));  // messages of different collectives never meet
}

TEST_P(FailuresTest, AnExceptionIsNotHeldUpByItsCommunicators) {
  if (rank_ == away_) {
    together_->barrier();
    return;
  }
  try {
    const auto world = std::move(world_);
    Ignore gone;  // destroyed with the rest, while the exchange waits for the one that is away
    const Extent whole[] = {tensor()};
    world->ordered_reduce_scatter(whole, gone);
    throw std::runtime_error("something else");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "something else");
  }
  together_->barrier();
}

TEST_P(FailuresTest, AFolderThatThrowsEndsTheCollective) {
  class Thrower : public OrderedReducer {
    void reduce(tensor::Stream&, int, std::int64_t, std::int64_t, std::span<const void* const>) override {
      throw std::runtime_error("no room for it");
    }
  } thrower;
  const Extent whole[] = {tensor()};
  EXPECT_THAT(error_of([&] { world_->ordered_reduce_scatter(whole, thrower).wait(); }),
              ContainsRegex("ordered reduce-scatter #[0-9]+ over the world failed \\(no room for it\\)"));
}

TEST_P(FailuresTest, MoreMemoryThanThereIsIsAnError) {
  auto another = tests::session().world(std::chrono::seconds(60));
  const std::string error = error_of([&] { another->symmetric_memory(std::int64_t{1} << 42); });
  EXPECT_THAT(error, HasSubstr("shared memory"));
  another->barrier();
}

TEST_P(FailuresTest, TensorsOutsideOfSymmetricMemoryAreTheProgrammersFault) {
  float outside[64] = {};
  const Extent wrong[] = {{outside, 64, 64, DType::fp32}};
  EXPECT_THROW(world_->all_gather(wrong), std::logic_error);
  Extent too_long = tensor();
  too_long.elements = too_long.part = 8 << 20;
  EXPECT_THROW(world_->all_gather({&too_long, 1}), std::logic_error);
  EXPECT_THROW(world_->symmetric_memory(1), std::logic_error);
}

}  // namespace
}  // namespace holdfast::comm
