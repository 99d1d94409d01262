// main() of the MPI tests: GoogleTest on every rank, output from rank 0 only, failure of one rank is failure
// of all.
#include <gtest/gtest.h>
#include <mpi.h>

#include "src/comm/mpi_session.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  holdfast::comm::MpiSession session(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed;
}
