#pragma once
// MPI for the life of the program. Complete after the constructor; the destructor finalises, except while an
// exception unwinds: then the others would wait for us in MPI_Finalize for ever, so it aborts the job
// instead.
#include <chrono>
#include <filesystem>
#include <memory>

#include "src/comm/communicator.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::comm {

class MpiSession {
 public:
  struct WorldOptions {
    std::chrono::milliseconds limit{60'000};  ///< no operation waits longer
    /// Not 0: as if only ranks r, r + 1, ... of each so many shared memory. For tests and measurements.
    int ranks_per_node = 0;
    /// A time-out also puts this rank's flight record into the log: for runs whose nodes have no agent that
    /// reads it.
    bool explain = true;
  };

  /// MPI_Init_thread (one thread at a time calls MPI), and who shares memory with whom. An Error (runtime)
  /// when that is refused.
  MpiSession(int* argc, char*** argv);
  /// All communicators must be gone.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  /// Ranks that share this rank's memory.
  int ranks_on_this_node() const;
  /// From here on the collectives of this rank are recorded in the file at `path` (see
  /// flight::FlightRecorder); before the first world(). Without it they are recorded where only this process
  /// sees it.
  void record_flight(const std::filesystem::path& path);
  /// What the collectives of this rank were and are doing.
  flight::FlightRecorder& flight() const;

  /// All ranks. Collective. A world of one is a SoloCommunicator.
  std::unique_ptr<Communicator> world(const WorldOptions& options) const;
  std::unique_ptr<Communicator> world(std::chrono::milliseconds limit) const;
  /// Ends this rank within two seconds; where mpirun or srun has started it, all of them. From any thread.
  [[noreturn]] void abort(int exit_code) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::comm
