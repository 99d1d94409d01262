#pragma once
// MPI for the life of the program. Complete after the constructor; the destructor finalises, except while an
// exception unwinds: then the others would wait for us in MPI_Finalize for ever, so it aborts the job
// instead.
#include <chrono>
#include <memory>

#include "src/comm/communicator.hpp"

namespace holdfast::comm {

class MpiSession {
 public:
  /// MPI_Init_thread (one thread at a time calls MPI). An Error (runtime) when that is refused.
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ranks that share this rank's memory; collective.
  int ranks_on_this_node() const;
  /// All ranks; no operation waits longer than `limit`. Collective. A world of one is a SoloCommunicator.
  std::unique_ptr<Communicator> world(std::chrono::milliseconds limit) const;
  /// Ends all ranks; mpirun returns `exit_code`.
  [[noreturn]] void abort(int exit_code) noexcept;

 private:
  int rank_ = 0, size_ = 1;
  int exceptions_at_start_ = 0;
};

}  // namespace holdfast::comm
