// main() of the MPI tests: GoogleTest on every rank, from the others than rank 0 their failures only; failure
// of one rank is failure of all.
#include "tests/support/mpi_main.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

namespace holdfast::tests {
namespace {
comm::MpiSession* the_session = nullptr;

class Failures : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", the_session->rank(), result.file_name(),
                   result.line_number(), result.message());
  }
};
}  // namespace

comm::MpiSession& session() { return *the_session; }

}  // namespace holdfast::tests

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  holdfast::comm::MpiSession session(&argc, &argv);
  holdfast::tests::the_session = &session;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new holdfast::tests::Failures);
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed;
}
