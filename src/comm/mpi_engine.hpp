#pragma once
// The communication thread: the only caller of MPI while it lives. It gives every group a turn, and sleeps
// when none has anything to do.
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/comm/mpi_group.hpp"

namespace holdfast::comm {

class MpiEngine {
 public:
  explicit MpiEngine(Doorbell& bell);
  /// The thread has ended: stop() was called.
  ~MpiEngine();
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  /// Groups with messages that nobody takes any more. Their memory must stay until MPI is finalised. Ends the
  /// thread.
  std::vector<std::shared_ptr<MpiGroup>> stop();
  /// See MpiWorld::beat.
  std::shared_ptr<const std::atomic<std::int64_t>> beat() const { return beat_; }
  void add(std::shared_ptr<MpiGroup> group);
  /// The group lives on inside for as long as messages of it are under way.
  void remove(const std::shared_ptr<MpiGroup>& group) noexcept;
  /// Ends all ranks of the job within two seconds, from any thread, also while MPI holds the communication
  /// thread.
  [[noreturn]] void abort(int exit_code) noexcept;

 private:
  void run();
  void refresh();

  Doorbell& bell_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<MpiGroup>> groups_;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<int> abort_code_{-1};
  std::atomic<bool> stop_{false}, ended_{false};
  std::shared_ptr<std::atomic<std::int64_t>> beat_;
  // The thread's own
  std::vector<std::shared_ptr<MpiGroup>> served_, unfinished_;
  std::uint64_t seen_ = 0;
  std::thread thread_;
};

/// Ends all ranks from the calling thread, whoever else is inside MPI.
[[noreturn]] void end_job(int exit_code) noexcept;

}  // namespace holdfast::comm
