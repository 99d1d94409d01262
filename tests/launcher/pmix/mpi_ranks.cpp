// A small program of MPI for pmix_test.cpp: prints what it knows of its world, or ends as it is told.
//   mpi_ranks [abort RANK | exit RANK | stay]
// stay: rank 0 says when all have come so far, and nobody ends.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, world = 0, near = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &near);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::printf("rank %d of %d, %d on its node, sum %d\n", rank, world, near, sum);
  std::fflush(stdout);
  if (argc == 2 && std::string_view(argv[1]) == "stay") {
    const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
    if (rank == 0) std::printf("ready %.6f\n", now.count());
    std::fflush(stdout);
    for (;;) ::pause();
  }
  if (argc > 2 && rank == std::atoi(argv[2])) {
    if (std::string_view(argv[1]) == "abort") MPI_Abort(MPI_COMM_WORLD, 7);
    ::_exit(9);
  }
  MPI_Comm_free(&node);
  MPI_Finalize();
}
