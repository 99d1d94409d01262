// All communicators are non-blocking: a call that needs others returns at once and is asked for its result
// until the deadline, so that a peer that is gone is an error and not a hang.
#include "src/cuda/real_nccl.hpp"

#include <fmt/core.h>
#include <nccl.h>

#include <cstring>
#include <deque>
#include <future>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::cuda {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0), "user buffers are registered since NCCL 2.19");

ncclComm_t comm_of(NcclHandle handle) { return reinterpret_cast<ncclComm_t>(handle); }
cudaStream_t stream_of(StreamHandle handle) { return reinterpret_cast<cudaStream_t>(handle); }

std::string text_of(ncclResult_t result, ncclComm_t comm) {
  const char* details = ncclGetLastError(comm);
  const std::string text = ncclGetErrorString(result);
  return details != nullptr && *details != '\0' ? text + ": " + details : text;
}

[[noreturn]] void fail(const char* call, ncclResult_t result, ncclComm_t comm) {
  throw Error(Exit::runtime, std::string("NCCL has failed in ") + call, text_of(result, comm),
              "NCCL_DEBUG=INFO says more");
}

void check(const char* call, ncclResult_t result, ncclComm_t comm) {
  if (result != ncclSuccess && result != ncclInProgress) fail(call, result, comm);
}

/// Asks until the communicator has done what `call` began.
void settle(const char* call, ncclResult_t result, ncclComm_t comm, std::chrono::milliseconds limit) {
  check(call, result, comm);
  const Deadline deadline = Deadline::in(limit);
  while (result == ncclInProgress) {
    check(call, ncclCommGetAsyncError(comm, &result), comm);
    check(call, result, comm);
    if (result == ncclInProgress) {
      if (deadline.passed())
        throw Error(Exit::runtime,
                    fmt::format("{} of NCCL did not finish within {} s", call,
                                static_cast<double>(limit.count()) / 1000),
                    "not all members have come, or they do not reach each other",
                    "NCCL_DEBUG=INFO says more");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

/// Runs `call`, which may hang, in a thread that is left behind then.
template <class Call>
void within(const char* name, std::chrono::milliseconds limit, const Call& call) noexcept {
  try {
    std::packaged_task<void()> task(call);
    std::future<void> done = task.get_future();
    std::thread(std::move(task)).detach();
    if (done.wait_for(limit) != std::future_status::ready)
      log::warn("{} of NCCL did not return within {} s; it is left behind", name,
                static_cast<double>(limit.count()) / 1000);
  } catch (const std::exception&) {
    // No thread, no log: nothing is left to be done.
  }
}

class RealNccl final : public Nccl {
 public:
  RealNccl() {
    int version = 0;
    check("ncclGetVersion", ncclGetVersion(&version), nullptr);
    version_ = version;
    if (version_ < NCCL_VERSION_CODE)
      throw Error(Exit::usage, "this NCCL is too old",
                  fmt::format("version {}; this build needs {}", nccl_version_text(version_),
                              nccl_version_text(NCCL_VERSION_CODE)),
                  "Is an older libnccl.so.2 found first?");
  }

  int version() const override { return version_; }

  NcclId unique_id() override {
    ncclUniqueId id;
    check("ncclGetUniqueId", ncclGetUniqueId(&id), nullptr);
    NcclId out;
    std::memcpy(out.data(), &id, sizeof id);
    return out;
  }

  NcclHandle init(const NcclId& id, int size, int rank, const std::string& name,
                  std::chrono::milliseconds limit) override {
    ncclUniqueId theirs;
    std::memcpy(&theirs, id.data(), sizeof theirs);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    config.commName = names_.emplace_back(name).c_str();
#else
    static_cast<void>(name);
#endif
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, size, theirs, rank, &config);
    try {
      settle("ncclCommInitRankConfig", result, comm, limit);
    } catch (const Error&) {
      if (comm != nullptr) abort(handle_of(comm), std::chrono::seconds(5));
      throw;
    }
    return handle_of(comm);
  }

  bool register_memory(NcclHandle comm, void* memory, std::int64_t bytes) override {
    void* registration = nullptr;  // lives as long as the communicator
    return ncclCommRegister(comm_of(comm), memory, static_cast<std::size_t>(bytes), &registration) ==
           ncclSuccess;
  }

  void begin() override { check("ncclGroupStart", ncclGroupStart(), nullptr); }
  void all_gather(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes) override {
    int rank = 0;
    check("ncclCommUserRank", ncclCommUserRank(comm_of(comm), &rank), comm_of(comm));
    check("ncclAllGather",
          ncclAllGather(static_cast<std::byte*>(to) + rank * bytes, to, static_cast<std::size_t>(bytes),
                        ncclInt8, comm_of(comm), stream_of(stream)),
          comm_of(comm));
  }
  void send(NcclHandle comm, StreamHandle stream, const void* from, std::int64_t bytes, int peer) override {
    check("ncclSend",
          ncclSend(from, static_cast<std::size_t>(bytes), ncclInt8, peer, comm_of(comm), stream_of(stream)),
          comm_of(comm));
  }
  void receive(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes, int peer) override {
    check("ncclRecv",
          ncclRecv(to, static_cast<std::size_t>(bytes), ncclInt8, peer, comm_of(comm), stream_of(stream)),
          comm_of(comm));
  }
  void end(NcclHandle comm, std::chrono::milliseconds limit) override {
    settle("ncclGroupEnd", ncclGroupEnd(), comm_of(comm), limit);
  }

  std::string trouble(NcclHandle comm) noexcept override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm_of(comm), &state);
    if (result != ncclSuccess) return text_of(result, comm_of(comm));
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return text_of(state, comm_of(comm));
  }

  void abort(NcclHandle comm, std::chrono::milliseconds limit) noexcept override {
    within("ncclCommAbort", limit, [comm] { ncclCommAbort(comm_of(comm)); });
  }

  void destroy(NcclHandle comm, std::chrono::milliseconds limit) noexcept override {
    within("ncclCommDestroy", limit, [comm, limit] {
      ncclResult_t state = ncclCommFinalize(comm_of(comm));
      const Deadline deadline = Deadline::in(limit);
      while (state == ncclInProgress && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (ncclCommGetAsyncError(comm_of(comm), &state) != ncclSuccess) break;
      }
      if (state == ncclSuccess)
        ncclCommDestroy(comm_of(comm));
      else
        ncclCommAbort(comm_of(comm));
    });
  }

 private:
  static NcclHandle handle_of(ncclComm_t comm) {
    return static_cast<NcclHandle>(reinterpret_cast<std::uintptr_t>(comm));
  }

  int version_ = 0;
  std::deque<std::string> names_;  // the library may keep the addresses
};

}  // namespace

std::unique_ptr<Nccl> make_real_nccl() { return std::make_unique<RealNccl>(); }

}  // namespace holdfast::cuda
