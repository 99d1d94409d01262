// The same cases at every world size; run by mpirun -n 1, 2 and 4.
#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/slice.hpp"
#include "src/comm/mpi_communicator.hpp"
#include "src/comm/solo_communicator.hpp"

namespace holdfast::comm {
namespace {

std::unique_ptr<Communicator> mpi_world(std::chrono::milliseconds limit) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) return std::make_unique<SoloCommunicator>();
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  return std::make_unique<MpiCommunicator>(all, "the world", limit);
}

float element(int member, int array, std::int64_t i) {
  return static_cast<float>(1000 * member + 100 * array) + static_cast<float>(i % 97);
}

class CommunicatorTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  std::unique_ptr<Communicator> world_ = mpi_world(std::chrono::seconds(60));
  std::int64_t room(std::int64_t n) const { return slice_stride(n, world_->size()) * world_->size(); }
};

TEST_P(CommunicatorTest, AllGatherFillsInThePartsOfOthers) {
  const std::int64_t n = GetParam();
  std::vector<float> a(static_cast<std::size_t>(room(n)), -1.f), b(static_cast<std::size_t>(room(77)), -1.f);
  const Slice mine = slice_of(n, world_->size(), world_->rank()),
              small = slice_of(77, world_->size(), world_->rank());
  for (std::int64_t i = mine.first; i < mine.first + mine.count; ++i)
    a[static_cast<std::size_t>(i)] = element(0, 0, i);
  for (std::int64_t i = small.first; i < small.first + small.count; ++i)
    b[static_cast<std::size_t>(i)] = element(0, 1, i);
  const Extent tensors[] = {{a.data(), n}, {b.data(), 77}};
  world_->all_gather(tensors);
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(a[static_cast<std::size_t>(i)], element(0, 0, i));
  for (std::int64_t i = 0; i < 77; ++i) ASSERT_EQ(b[static_cast<std::size_t>(i)], element(0, 1, i));
  for (std::size_t i = static_cast<std::size_t>(n); i < a.size(); ++i)
    ASSERT_EQ(a[i], -1.f) << "padding does not travel";
  EXPECT_EQ(world_->wire().all_gather, (mine.count + small.count) * 4 * (world_->size() - 1));
}

TEST_P(CommunicatorTest, LeavesArriveInOrderOfMembersAndEachElementOnce) {
  const std::int64_t n = GetParam();
  std::vector<float> a(static_cast<std::size_t>(room(n))), b(static_cast<std::size_t>(room(5)));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = element(world_->rank(), 0, static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = element(world_->rank(), 1, static_cast<std::int64_t>(i));
  const Extent leaves[] = {{b.data(), 5}, {a.data(), n}};
  std::map<std::pair<int, std::int64_t>, int> seen;
  world_->fold_leaves(
      leaves, [&](int tensor, std::int64_t first, std::int64_t count, std::span<const float* const> sources) {
        ASSERT_EQ(static_cast<int>(sources.size()), world_->size());
        const Slice mine = slice_of(tensor == 0 ? 5 : n, world_->size(), world_->rank());
        for (std::int64_t i = 0; i < count; ++i) {
          ++seen[{tensor, first + i}];
          for (int m = 0; m < world_->size(); ++m)
            ASSERT_EQ(sources[static_cast<std::size_t>(m)][i],
                      element(m, tensor == 0 ? 1 : 0, mine.first + first + i));
        }
      });
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), slice_of(n, world_->size(), world_->rank()).count +
                                                        slice_of(5, world_->size(), world_->rank()).count);
  for (const auto& [where, times] : seen) ASSERT_EQ(times, 1);
}

TEST_P(CommunicatorTest, NodesArriveInOrderThoughMembersHoldDifferentNumbersOfThem) {
  const std::int64_t n = GetParam();
  std::vector<int> arrays_of;
  for (int m = 0; m < world_->size(); ++m) arrays_of.push_back(1 + m % 3);
  std::vector<std::vector<float>> arrays(
      static_cast<std::size_t>(arrays_of[static_cast<std::size_t>(world_->rank())]),
      std::vector<float>(static_cast<std::size_t>(n)));
  std::vector<const float*> nodes;
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    for (std::int64_t i = 0; i < n; ++i)
      arrays[k][static_cast<std::size_t>(i)] = element(world_->rank(), static_cast<int>(k), i);
    nodes.push_back(arrays[k].data());
  }
  const Slice mine = slice_of(n, world_->size(), world_->rank());
  std::int64_t elements = 0;
  world_->exchange_nodes(
      nodes, arrays_of, n,
      [&](int, std::int64_t first, std::int64_t count, std::span<const float* const> sources) {
        elements += count;
        std::size_t at = 0;
        for (int m = 0; m < world_->size(); ++m)
          for (int k = 0; k < arrays_of[static_cast<std::size_t>(m)]; ++k, ++at)
            for (std::int64_t i = 0; i < count; ++i)
              ASSERT_EQ(sources[at][i], element(m, k, mine.first + first + i));
        ASSERT_EQ(at, sources.size());
      });
  EXPECT_EQ(elements, mine.count);
}

// 200,003: several rounds on every world size, and a last part that is shorter than the others.
INSTANTIATE_TEST_SUITE_P(Sizes, CommunicatorTest, ::testing::Values(1, 63, 65, 1000, 200003, 700001));

TEST(Communicator, IntegersAddModuloTwoTo64AndMaximaAreMaxima) {
  auto world = mpi_world(std::chrono::seconds(60));
  const auto rank = static_cast<std::uint64_t>(world->rank()),
             size = static_cast<std::uint64_t>(world->size());
  std::uint64_t sums[] = {~std::uint64_t{0}, rank}, maxima[] = {rank};
  world->all_reduce(sums, Scalar::sum);
  world->all_reduce(maxima, Scalar::max);
  EXPECT_EQ(sums[0], std::uint64_t{0} - size);
  EXPECT_EQ(sums[1], size * (size - 1) / 2);
  EXPECT_EQ(maxima[0], size - 1);
}

TEST(Communicator, TextOfAnyLengthReachesEverybody) {
  auto world = mpi_world(std::chrono::seconds(60));
  const int last = world->size() - 1;
  EXPECT_EQ(broadcast_text(*world, world->rank() == last ? "from the last rank" : "", last),
            "from the last rank");
  EXPECT_EQ(broadcast_text(*world, "", 0), "");
}

TEST(Communicator, GroupsAreOrderedByKeyAndAGroupOfOneWorks) {
  auto world = mpi_world(std::chrono::seconds(60));
  auto alone = world->split(world->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  auto reversed = world->split(0, -world->rank());
  EXPECT_EQ(reversed->rank(), world->size() - 1 - world->rank());
  reversed->barrier();
}

TEST(Communicator, APeerThatStaysAwayIsAnErrorThatNamesTheOperation) {
  auto world = mpi_world(std::chrono::milliseconds(300));
  if (world->size() == 1) GTEST_SKIP() << "nobody to wait for";
  if (world->rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } else {
    try {
      world->barrier();
      FAIL() << "the barrier ended without rank 0";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::runtime);
      EXPECT_NE(std::string(error.what()).find("barrier over the world"), std::string::npos) << error.what();
    }
  }
  (void)world.release();  // its barrier never ends: nothing may be freed
}

}  // namespace
}  // namespace holdfast::comm
