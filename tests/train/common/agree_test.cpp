// All go on, or all throw: at every world size.
#include "src/train/common/agree.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/support/mpi_main.hpp"

namespace holdfast::train {
namespace {

class Agree : public ::testing::Test {
 protected:
  std::unique_ptr<comm::Communicator> world_ = tests::session().world({.limit = std::chrono::seconds(30)});
};

TEST_F(Agree, WithoutFailureNothingHappens) {
  int done = 0;
  together(*world_, world_->rank() == 0, [&] { ++done; });
  EXPECT_EQ(done, world_->rank() == 0 ? 1 : 0);
  EXPECT_FALSE(worst_failure(*world_, std::nullopt));
}

TEST_F(Agree, OneFailureIsEverybodys) {
  const int culprit = world_->size() - 1;
  try {
    together(*world_, world_->rank() == culprit,
             [] { throw Error(Exit::out_of_spares, "the last one failed"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::out_of_spares);
    EXPECT_NE(std::string(error.what()).find("the last one failed"), std::string::npos);
  }
}

TEST_F(Agree, TheWorstWinsAndAmongEqualsTheLowestRank) {
  const auto rank = world_->rank(), last = world_->size() - 1;
  auto worst = worst_failure(*world_, Failure{rank == last ? 2u : 1u, rank, "rank " + std::to_string(rank)});
  ASSERT_TRUE(worst);
  EXPECT_EQ(worst->severity, 2u);
  EXPECT_EQ(worst->text, "rank " + std::to_string(last));
  worst = worst_failure(*world_, Failure{1, rank, "rank " + std::to_string(rank)});
  EXPECT_EQ(worst->rank, 0);
  EXPECT_EQ(worst->text, "rank 0");
}

TEST_F(Agree, TextsOfAllComeInTheirOrder) {
  const auto text_of = [](int rank) { return std::string(5 * rank, 'a') + "é"; };
  const auto all = texts_of_all(*world_, text_of(world_->rank()));
  ASSERT_EQ(static_cast<int>(all.size()), world_->size());
  for (int r = 0; r < world_->size(); ++r) EXPECT_EQ(all[r], text_of(r));
  for (const auto& text : texts_of_all(*world_, "")) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace holdfast::train
