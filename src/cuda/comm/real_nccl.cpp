// All communicators are non-blocking: a call that needs others returns at once and is asked for its result
// until the deadline, so that a peer that is gone is an error and not a hang.
//
// ncclCommAbort() and ncclCommDestroy() free a communicator, and the watch may abort one that the caller's
// thread is waiting for. So every call takes the communicator's lock and then looks whether it is still
// there; only who hangs inside NCCL is not waited for, since the abort is what brings him back.
#include "src/cuda/comm/real_nccl.hpp"

#include <dlfcn.h>
#include <fmt/core.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/cuda/comm/nccl_communicator.hpp"

namespace holdfast::cuda {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0), "user buffers are registered since NCCL 2.19");

constexpr const char* usual_library = "libnccl.so.2";
constexpr auto abort_patience = std::chrono::milliseconds(500);

// The library, opened while the program runs. Nothing of it is in the header but types.
#define HOLDFAST_NCCL_FUNCTIONS(DO) \
  DO(GetVersion)                    \
  DO(GetUniqueId)                   \
  DO(GetLastError)                  \
  DO(GetErrorString)                \
  DO(CommInitRankConfig)            \
  DO(CommGetAsyncError)             \
  DO(CommRegister)                  \
  DO(CommUserRank)                  \
  DO(CommAbort) DO(CommFinalize) DO(CommDestroy) DO(GroupStart) DO(GroupEnd) DO(AllGather) DO(Send) DO(Recv)

struct Library {
#define HOLDFAST_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  HOLDFAST_NCCL_FUNCTIONS(HOLDFAST_MEMBER)
#undef HOLDFAST_MEMBER
  int version = 0;

  explicit Library(const std::string& file) {
    void* const handle = open(file);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      if (function == nullptr)
        throw Error(Exit::usage, "this NCCL is too old or none at all", fmt::format("it has no {}", name),
                    "Is an older libnccl.so.2 found first?");
    };
#define HOLDFAST_FIND(name) find(name, "nccl" #name);
    HOLDFAST_NCCL_FUNCTIONS(HOLDFAST_FIND)
#undef HOLDFAST_FIND
    if (const ncclResult_t result = GetVersion(&version); result != ncclSuccess)
      throw Error(Exit::runtime, "NCCL has failed in ncclGetVersion", GetErrorString(result));
    if (version < NCCL_VERSION_CODE)
      throw Error(Exit::usage, "this NCCL is too old",
                  fmt::format("version {}; this build needs {}", nccl_version_text(version),
                              nccl_version_text(NCCL_VERSION_CODE)),
                  "Is an older libnccl.so.2 found first?");
  }

 private:
  static void* open(const std::string& file) {
    std::string why;
    for (const std::string& name : file.empty()
                                       ? std::vector<std::string>{usual_library, HOLDFAST_NCCL_LIBRARY}
                                       : std::vector<std::string>{file}) {
      if (void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;  // for good
      const char* const said = ::dlerror();
      why += (why.empty() ? "" : "; ") + std::string(said != nullptr ? said : "no reason given");
    }
    throw Error(Exit::runtime, "GPUs of several nodes cannot reach each other: NCCL cannot be loaded", why,
                "Put the folder of libnccl.so.2 into LD_LIBRARY_PATH, or use one node");
  }
};

/// A communicator, as long as anybody may ask for it: longer than it exists in NCCL.
struct Comm {
  std::shared_ptr<const Library> nccl;
  ncclComm_t comm = nullptr;
  std::mutex mutex;
  std::atomic<bool> gone{false};  // set under mutex, but where somebody hangs inside NCCL
};

cudaStream_t stream_of(StreamHandle handle) { return reinterpret_cast<cudaStream_t>(handle); }

std::string text_of(const Library& nccl, ncclResult_t result, ncclComm_t comm) {
  const char* details = nccl.GetLastError(comm);
  const std::string text = nccl.GetErrorString(result);
  return details != nullptr && *details != '\0' ? text + ": " + details : text;
}

void check_nccl(const Library& nccl, const char* call, ncclResult_t result, ncclComm_t comm) {
  if (result != ncclSuccess && result != ncclInProgress)
    throw Error(Exit::runtime, std::string("NCCL has failed in ") + call, text_of(nccl, result, comm),
                "NCCL_DEBUG=INFO says more");
}

/// `work(nccl, comm)` while nobody frees the communicator.
template <class Work>
ncclResult_t with(Comm& comm, const char* call, const Work& work) {
  const std::lock_guard lock(comm.mutex);
  if (comm.gone)
    throw Error(Exit::runtime, fmt::format("{} of NCCL cannot be done", call),
                "its communicator was given up");
  const ncclResult_t result = work(*comm.nccl, comm.comm);
  check_nccl(*comm.nccl, call, result, comm.comm);
  return result;
}

/// Asks until the communicator has done what `call` began.
void settle(Comm& comm, const char* call, ncclResult_t result, std::chrono::milliseconds limit) {
  const Deadline deadline = Deadline::in(limit);
  while (result == ncclInProgress) {
    with(comm, call, [&](const Library& nccl, ncclComm_t c) {
      const ncclResult_t asked = nccl.CommGetAsyncError(c, &result);
      return asked == ncclSuccess ? result : asked;
    });
    if (result != ncclInProgress) return;
    if (deadline.passed())
      throw Error(Exit::runtime,
                  fmt::format("{} of NCCL did not finish within {} s", call,
                              static_cast<double>(limit.count()) / 1000),
                  "not all members have come, or they do not reach each other", "NCCL_DEBUG=INFO says more");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
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

/// From here on nobody asks for it. False: it was gone already.
bool take_away(Comm& comm) {
  std::unique_lock lock(comm.mutex, std::defer_lock);
  const Deadline patience = Deadline::in(abort_patience);  // behind it, somebody hangs in there
  while (!lock.try_lock() && !patience.passed()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return !comm.gone.exchange(true);
}

class RealNccl final : public Nccl {
 public:
  explicit RealNccl(std::string file) : file_(std::move(file)) {}

  int version() override { return library()->version; }

  NcclId unique_id() override {
    const auto nccl = library();
    ncclUniqueId id;
    check_nccl(*nccl, "ncclGetUniqueId", nccl->GetUniqueId(&id), nullptr);
    NcclId out;
    std::memcpy(out.data(), &id, sizeof id);
    return out;
  }

  NcclHandle init(const NcclId& id, int size, int rank, const std::string& name,
                  std::chrono::milliseconds limit) override {
    const auto comm = std::make_shared<Comm>();
    comm->nccl = library();
    ncclUniqueId theirs;
    std::memcpy(&theirs, id.data(), sizeof theirs);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    config.commName = names_.emplace_back(name).c_str();
#else
    static_cast<void>(name);
#endif
    const ncclResult_t result = comm->nccl->CommInitRankConfig(&comm->comm, size, theirs, rank, &config);
    const NcclHandle handle = add(comm);
    try {
      check_nccl(*comm->nccl, "ncclCommInitRankConfig", result, comm->comm);
      settle(*comm, "ncclCommInitRankConfig", result, limit);
    } catch (const Error&) {
      if (comm->comm != nullptr) abort(handle, std::chrono::seconds(5));
      throw;
    }
    return handle;
  }

  bool register_memory(NcclHandle handle, void* memory, std::int64_t bytes) override {
    Comm& comm = *find(handle);
    const std::lock_guard lock(comm.mutex);
    void* registration = nullptr;  // lives as long as the communicator
    return !comm.gone &&
           comm.nccl->CommRegister(comm.comm, memory, as_size(bytes), &registration) == ncclSuccess;
  }

  void begin() override {
    const auto nccl = library();
    check_nccl(*nccl, "ncclGroupStart", nccl->GroupStart(), nullptr);
  }
  void all_gather(NcclHandle handle, StreamHandle stream, void* to, std::int64_t bytes) override {
    with(*find(handle), "ncclAllGather", [&](const Library& nccl, ncclComm_t comm) {
      int rank = 0;
      if (const ncclResult_t result = nccl.CommUserRank(comm, &rank); result != ncclSuccess) return result;
      return nccl.AllGather(static_cast<std::byte*>(to) + rank * bytes, to, as_size(bytes), ncclInt8, comm,
                            stream_of(stream));
    });
  }
  void send(NcclHandle handle, StreamHandle stream, const void* from, std::int64_t bytes, int peer) override {
    with(*find(handle), "ncclSend", [&](const Library& nccl, ncclComm_t comm) {
      return nccl.Send(from, as_size(bytes), ncclInt8, peer, comm, stream_of(stream));
    });
  }
  void receive(NcclHandle handle, StreamHandle stream, void* to, std::int64_t bytes, int peer) override {
    with(*find(handle), "ncclRecv", [&](const Library& nccl, ncclComm_t comm) {
      return nccl.Recv(to, as_size(bytes), ncclInt8, peer, comm, stream_of(stream));
    });
  }
  void end(NcclHandle handle, std::chrono::milliseconds limit) override {
    Comm& comm = *find(handle);
    const ncclResult_t result =
        with(comm, "ncclGroupEnd", [](const Library& nccl, ncclComm_t) { return nccl.GroupEnd(); });
    settle(comm, "ncclGroupEnd", result, limit);
  }

  std::string trouble(NcclHandle handle) noexcept override {
    const auto comm = find(handle);
    const std::unique_lock lock(comm->mutex, std::try_to_lock);
    if (!lock.owns_lock()) return {};  // the watch, which asks, waits for nobody
    if (comm->gone) return "its communicator was given up";
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = comm->nccl->CommGetAsyncError(comm->comm, &state);
    if (result != ncclSuccess) return text_of(*comm->nccl, result, comm->comm);
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return text_of(*comm->nccl, state, comm->comm);
  }

  void abort(NcclHandle handle, std::chrono::milliseconds limit) noexcept override {
    const auto comm = find(handle);
    if (!take_away(*comm)) return;
    within("ncclCommAbort", limit, [comm] { comm->nccl->CommAbort(comm->comm); });
  }

  void destroy(NcclHandle handle, std::chrono::milliseconds limit) noexcept override {
    const auto comm = find(handle);
    if (!take_away(*comm)) return;
    within("ncclCommDestroy", limit, [comm, limit] {
      const Library& nccl = *comm->nccl;
      ncclResult_t state = nccl.CommFinalize(comm->comm);
      const Deadline deadline = Deadline::in(limit);
      while (state == ncclInProgress && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (nccl.CommGetAsyncError(comm->comm, &state) != ncclSuccess) break;
      }
      if (state == ncclSuccess)
        nccl.CommDestroy(comm->comm);
      else
        nccl.CommAbort(comm->comm);
    });
  }

 private:
  /// By whoever needs it first.
  std::shared_ptr<const Library> library() {
    const std::lock_guard lock(mutex_);
    if (!library_) library_ = std::make_shared<const Library>(file_);
    return library_;
  }
  NcclHandle add(std::shared_ptr<Comm> comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(std::move(comm));
    return static_cast<NcclHandle>(comms_.size() - 1);
  }
  std::shared_ptr<Comm> find(NcclHandle handle) {
    const std::lock_guard lock(mutex_);
    return comms_.at(as_size(handle));
  }

  const std::string file_;
  std::mutex mutex_;  // of what follows
  std::shared_ptr<const Library> library_;
  std::vector<std::shared_ptr<Comm>> comms_;
  std::deque<std::string> names_;  // the library may keep the addresses
};

}  // namespace

std::unique_ptr<Nccl> make_real_nccl(const std::string& library) {
  return std::make_unique<RealNccl>(library);
}

}  // namespace holdfast::cuda
