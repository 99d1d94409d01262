#pragma once
// NCCL for the simulated GPU: between processes of one machine, through shared memory. Operations are
// enqueued on the simulated streams and move a little whenever they are looked at, so they come in any order
// that streams allow, and hang when a member does not come, as NCCL's do.
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/shared_memory.hpp"
#include "src/cuda/comm/nccl.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::sim {

class SimNccl final : public Nccl {
 public:
  static constexpr int max_members = 8;

  explicit SimNccl(SimRuntime& runtime, int version = 22809);
  ~SimNccl() override;

  int version() override { return version_; }
  NcclId unique_id() override;
  NcclHandle init(const NcclId& id, int size, int rank, const std::string& name,
                  std::chrono::milliseconds limit) override;
  bool register_memory(NcclHandle comm, void* memory, std::int64_t bytes) override;
  void begin() override;
  void all_gather(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes) override;
  void send(NcclHandle comm, StreamHandle stream, const void* from, std::int64_t bytes, int peer) override;
  void receive(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes, int peer) override;
  void end(NcclHandle comm, std::chrono::milliseconds limit) override;
  std::string trouble(NcclHandle comm) noexcept override;
  void abort(NcclHandle comm, std::chrono::milliseconds limit) noexcept override;
  void destroy(NcclHandle comm, std::chrono::milliseconds limit) noexcept override;

  // For tests
  /// The communicator of this name has failed, as after a broken connection; "": it has not.
  void fail(const std::string& name, const std::string& text);
  int launches() const { return launches_; }
  int all_gathers() const { return all_gathers_; }
  int sends() const { return sends_; }
  int registrations() const { return registrations_; }
  int aborts() const { return aborts_.load(); }

 private:
  struct Member;
  struct Transfer;
  Member& member(NcclHandle comm);
  void add(NcclHandle comm, StreamHandle stream, bool sends, std::uint64_t kind, const void* data,
           std::int64_t bytes, int peer);
  static bool move(Member& member, std::vector<Transfer>& transfers);

  SimRuntime& runtime_;
  const int version_;
  std::deque<comm::SharedMemory> offered_;  // until everybody has opened it
  mutable std::mutex mutex_;                // of the list
  std::deque<std::unique_ptr<Member>> members_;
  bool grouping_ = false;
  Member* group_of_ = nullptr;
  StreamHandle group_stream_{};
  std::vector<Transfer> group_;
  int launches_ = 0, all_gathers_ = 0, sends_ = 0, registrations_ = 0;
  std::atomic<int> aborts_{0};
};

}  // namespace holdfast::cuda::sim
