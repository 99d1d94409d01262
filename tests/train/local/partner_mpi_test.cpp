// Partner copies over the network that a run has: each rank stands for a node, with a folder of its own.
#include <gtest/gtest.h>

#include "tests/support/mpi_main.hpp"
#include "tests/train/local/partner_world.hpp"

namespace holdfast::train {
namespace {

TEST(PartnerCopies, ArriveOverTcpAndOutliveTheRanks) {
  auto world = tests::session().world(std::chrono::seconds(60));
  const int rank = world->rank(), size = world->size();
  std::string scratch = (std::filesystem::temp_directory_path() / "hf-partner.XXXXXX").string();
  if (rank == 0) {
    ASSERT_NE(::mkdtemp(scratch.data()), nullptr);
  }
  scratch = comm::broadcast_text(*world, scratch, 0);
  const LocalRun run = partner_run(size, config::Strategy::hfsdp);
  for (int start = 0; start < 2; ++start) {
    PartnerRank me(run, rank, 1, scratch, 1,
                   comm::open_exchange(*world, {.network = "lo", .shared_memory = false}));
    for (int step = 1; step <= 4; ++step) me.step(10 * start + step);
    EXPECT_EQ(me.copies().counts().copies, 4);
    EXPECT_GE(me.copies().counts().bytes, 4 * buffer_shape_of(run, rank).bytes);
    EXPECT_EQ(me.copies().describe(), "tcp/lo");
  }
  world->barrier();
  if (rank == 0) {
    for (int r = 0; r < size; ++r) {
      expect_copy(run, r, 1, scratch, 14);
      expect_copy(run, r, 1, scratch, 13);
    }
    std::filesystem::remove_all(scratch);
  }
  world->barrier();
}

}  // namespace
}  // namespace holdfast::train
