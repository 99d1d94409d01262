#include "src/comm/mpi_session.hpp"

#include <mpi.h>

#include <cstdlib>
#include <exception>

#include "src/base/error.hpp"
#include "src/comm/mpi_communicator.hpp"
#include "src/comm/solo_communicator.hpp"

namespace holdfast::comm {

MpiSession::MpiSession(int* argc, char*** argv) : exceptions_at_start_(std::uncaught_exceptions()) {
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    throw Error(Exit::runtime, "MPI did not start", "MPI_Init_thread failed");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw Error(Exit::runtime, "this MPI allows calls from the first thread only",
                "MPI_THREAD_SERIALIZED was refused", "Use an Open MPI built with thread support");
  }
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > exceptions_at_start_) abort(static_cast<int>(Exit::runtime));
  MPI_Finalize();
}

int MpiSession::ranks_on_this_node() const {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  int count = 1;
  MPI_Comm_size(node, &count);
  MPI_Comm_free(&node);
  return count;
}

std::unique_ptr<Communicator> MpiSession::world(std::chrono::milliseconds limit) const {
  if (size_ == 1) return std::make_unique<SoloCommunicator>();
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  return std::make_unique<MpiCommunicator>(all, "the world", limit);
}

void MpiSession::abort(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort may return when the runtime is already gone
}

}  // namespace holdfast::comm
