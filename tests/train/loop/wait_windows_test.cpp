// What a rank tells of its waits: whole windows, the longest first, and of nodes that sent anything.
#include "src/train/loop/wait_windows.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/comm/solo_communicator.hpp"

namespace holdfast::train {
namespace {

/// Rank 0 of a world whose bulk operations the test makes wait.
class WaitingWorld final : public comm::Communicator {
 public:
  explicit WaitingWorld(int size) : ns(size), size_(size) {}
  std::vector<std::int64_t> ns;  ///< by rank
  bool knows = true;

  int rank() const override { return 0; }
  int size() const override { return size_; }
  bool awaited(std::span<std::int64_t> by_rank) const override {
    if (knows) std::copy(ns.begin(), ns.end(), by_rank.begin());
    return knows;
  }
  std::span<std::byte> symmetric_memory(std::int64_t) override { return {}; }
  comm::Event all_gather(std::span<const comm::Extent>, const comm::Event&) override { return {}; }
  comm::Event ordered_reduce_scatter(std::span<const comm::Extent>, comm::OrderedReducer&,
                                     const comm::Event&) override {
    return {};
  }
  comm::Event exchange_partial_sums(std::span<const comm::Extent>, std::int64_t, std::span<const int>,
                                    comm::OrderedReducer&, const comm::Event&) override {
    return {};
  }
  void all_reduce(std::span<std::uint64_t>, comm::Scalar) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  std::unique_ptr<comm::Communicator> split(int, int, std::string) override { return nullptr; }
  const comm::Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override {}

 private:
  int size_;
  comm::Wire wire_;
};

struct HeardLink : control::RankLink {
  std::vector<control::Waits> heard;
  void waited(const control::Waits& waits) override { heard.push_back(waits); }
};

class WaitWindowsTest : public testing::Test {
 protected:
  /// Steps up to `until`, in each of which rank r is awaited for `ms[r]`.
  void steps(std::int64_t until, const std::map<int, std::int64_t>& ms) {
    while (step_ < until) {
      for (const auto& [rank, each] : ms) world_.ns[rank] += each * 1'000'000;
      windows_.stepped(++step_, now_ += 0.25);
    }
  }
  WaitingWorld world_{64};
  HeardLink link_;
  WaitWindows windows_{world_, link_};
  std::int64_t step_ = 0;
  double now_ = 1000;
};

TEST_F(WaitWindowsTest, AWindowTellsThoseThatSentAnythingTheLongestFirst) {
  steps(10, {{2, 100}});
  EXPECT_TRUE(link_.heard.empty()) << "the first steps take longer than others";
  steps(20, {{2, 3}, {4, 9}, {6, 2}, {8, 4}});
  ASSERT_EQ(link_.heard.size(), 1u);
  const control::Waits& told = link_.heard[0];
  EXPECT_EQ(told.step, 20);
  EXPECT_EQ(told.window_us, 2'500'000);
  EXPECT_EQ(told.nodes, 4);
  EXPECT_EQ(told.median_us, 30'000) << "the lower one of the two in the middle";
  std::vector<std::pair<int, std::int64_t>> longest;
  for (const auto& [rank, us] : told.longest) longest.emplace_back(rank, us);
  EXPECT_EQ(longest,
            (std::vector<std::pair<int, std::int64_t>>{{4, 90'000}, {8, 40'000}, {2, 30'000}, {6, 20'000}}));
  steps(30, {{2, 1}});
  ASSERT_EQ(link_.heard.size(), 2u) << "what was awaited before does not count again";
  EXPECT_EQ(link_.heard[1].nodes, 1);
  EXPECT_EQ(link_.heard[1].longest[0].us, 10'000);
  EXPECT_EQ(link_.heard[1].median_us, 10'000);
}

TEST_F(WaitWindowsTest, OfManyNodesItNamesAFew) {
  std::map<int, std::int64_t> ms;
  for (int rank = 1; rank < 64; ++rank) ms[rank] = rank;
  steps(10, {});
  steps(20, ms);
  ASSERT_EQ(link_.heard.size(), 1u);
  EXPECT_EQ(link_.heard[0].nodes, 63);
  EXPECT_EQ(link_.heard[0].median_us, 320'000);
  ASSERT_EQ(link_.heard[0].longest.size(), control::Waits::max_named);
  EXPECT_EQ(link_.heard[0].longest.back().rank, 64 - static_cast<int>(control::Waits::max_named));
}

TEST_F(WaitWindowsTest, AWindowThatBeganInItsMiddleIsNotTold) {
  step_ = 4;  // of a state that was restored
  steps(10, {{2, 3}});
  EXPECT_TRUE(link_.heard.empty());
  steps(20, {{2, 3}});
  ASSERT_EQ(link_.heard.size(), 1u);
  EXPECT_EQ(link_.heard[0].longest[0].us, 30'000);
}

TEST_F(WaitWindowsTest, NothingIsToldOfMessagesThatAreNotKnown) {
  world_.knows = false;
  steps(40, {{2, 3}});
  EXPECT_TRUE(link_.heard.empty());
}

TEST_F(WaitWindowsTest, WhereNothingCameNothingIsTold) {
  steps(40, {});
  EXPECT_TRUE(link_.heard.empty());
}

TEST(WaitWindows, ARankAloneHasNothingToTell) {
  comm::SoloCommunicator alone;
  HeardLink link;
  WaitWindows windows(alone, link);
  for (int step = 1; step <= 20; ++step) windows.stepped(step, 1);
  EXPECT_TRUE(link.heard.empty());
}

}  // namespace
}  // namespace holdfast::train
