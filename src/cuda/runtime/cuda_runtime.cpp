// Nearly every function has the same three steps: bind() makes this GPU the current device of the calling
// thread, one call of CUDA follows, and check() turns its code into an Error that names the call and the GPU.
// What frees or destroys goes through end() instead, which only logs. Kernels are launched elsewhere
// (SIMT_LAUNCH); declare(), which comes before each launch, binds the thread for them.
//
// The constructor makes the context and lets a stream write and await one word of host memory (try_words),
// for 30 s at most: a GPU that does not answer, or has no such operations, is refused here and not in the
// middle of a step. What holds afterwards: a device allocation has its driver pages of 2 MiB for itself, and
// pinned host memory has the same address on host and GPU. Memory that is registered may have another one on
// the GPU.
#include "src/cuda/runtime/cuda_runtime.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cuda/runtime/cuda_error.hpp"
#include "src/cuda/runtime/driver.hpp"
#include "src/cuda/runtime/native.hpp"

namespace holdfast::cuda {
namespace {

/// Allocations are whole pages of the driver's: then each is exported (IPC) without its neighbours.
constexpr std::int64_t gpu_page = 2 << 20;

template <class Handle, class Pointer>
Handle handle_of(Pointer pointer) {
  return static_cast<Handle>(reinterpret_cast<std::uintptr_t>(pointer));
}

/// As nvidia-smi writes it.
std::string uuid_text(const std::array<unsigned char, 16>& uuid, bool slice) {
  std::string text = slice ? "MIG" : "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

class CudaRuntime final : public Runtime {
 public:
  CudaRuntime(int index, std::string driver)
      : index_(index), facts_(cuda_facts(index)), name_(describe_gpu(index, facts_.uuid, facts_.bus)) {
    facts_.driver = std::move(driver);
    bind();
    try_words();
  }

  const GpuTraits& facts() const override { return facts_; }
  std::int64_t free_bytes() override {
    bind();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }

  void* device_alloc(std::int64_t bytes) override {
    bind();
    void* memory = nullptr;
    const std::int64_t whole = (std::max<std::int64_t>(bytes, 1) + gpu_page - 1) / gpu_page * gpu_page;
    check(cudaMalloc(&memory, as_size(whole)), "cudaMalloc");
    return memory;
  }
  void device_free(void* memory) noexcept override {
    end([&] { return cudaFree(memory); }, "cudaFree");
  }
  void* host_alloc(std::int64_t bytes) override {
    bind();
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, as_size(std::max<std::int64_t>(bytes, 1)),
                        cudaHostAllocPortable | cudaHostAllocMapped),
          "cudaHostAlloc");
    void* on_gpu = nullptr;
    check(cudaHostGetDevicePointer(&on_gpu, memory, 0), "cudaHostGetDevicePointer");
    if (on_gpu != memory)
      throw Error(Exit::runtime, fmt::format("{} sees pinned host memory at another address", name_),
                  "there is no unified addressing");
    return memory;
  }
  void host_free(void* memory) noexcept override {
    end([&] { return cudaFreeHost(memory); }, "cudaFreeHost");
  }
  void* host_register(void* memory, std::int64_t bytes) override {
    bind();
    check(cudaHostRegister(memory, as_size(bytes), cudaHostRegisterPortable | cudaHostRegisterMapped),
          "cudaHostRegister");
    void* on_gpu = nullptr;
    check(cudaHostGetDevicePointer(&on_gpu, memory, 0), "cudaHostGetDevicePointer");
    return on_gpu;
  }
  void host_unregister(void* memory) noexcept override {
    end([&] { return cudaHostUnregister(memory); }, "cudaHostUnregister");
  }
  IpcHandle ipc_export(void* memory) override {
    bind();
    cudaIpcMemHandle_t handle{};
    check(cudaIpcGetMemHandle(&handle, memory), "cudaIpcGetMemHandle");
    static_assert(sizeof handle == sizeof(IpcHandle));
    IpcHandle out;
    std::memcpy(out.data(), &handle, sizeof handle);
    return out;
  }
  void* ipc_open(const IpcHandle& exported, std::int64_t) override {
    bind();
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, exported.data(), sizeof handle);
    void* memory = nullptr;
    check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    return memory;
  }
  void ipc_close(void* memory) noexcept override {
    end([&] { return cudaIpcCloseMemHandle(memory); }, "cudaIpcCloseMemHandle");
  }

  StreamHandle stream_create(Priority priority) override {
    bind();
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       priority == Priority::high ? highest : lowest),
          "cudaStreamCreateWithPriority");
    return handle_of<StreamHandle>(stream);
  }
  void stream_destroy(StreamHandle stream) noexcept override {
    end([&] { return cudaStreamDestroy(native(stream)); }, "cudaStreamDestroy");
  }
  EventHandle event_create() override {
    bind();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return handle_of<EventHandle>(event);
  }
  void event_destroy(EventHandle event) noexcept override {
    end([&] { return cudaEventDestroy(native(event)); }, "cudaEventDestroy");
  }
  void event_record(EventHandle event, StreamHandle stream) override {
    bind();
    check(cudaEventRecord(native(event), native(stream)), "cudaEventRecord");
  }
  bool event_passed(EventHandle event) override {
    bind();
    const cudaError_t error = cudaEventQuery(native(event));
    if (error == cudaErrorNotReady) return false;
    check(error, "cudaEventQuery");
    return true;
  }
  void stream_wait(StreamHandle stream, EventHandle event) override {
    bind();
    check(cudaStreamWaitEvent(native(stream), native(event), cudaEventWaitDefault), "cudaStreamWaitEvent");
  }

  void copy(StreamHandle stream, void* to, const void* from, std::int64_t bytes) override {
    if (bytes <= 0) return;
    bind();
    check(cudaMemcpyAsync(to, from, as_size(bytes), cudaMemcpyDefault, native(stream)), "cudaMemcpyAsync");
  }
  void zero(StreamHandle stream, void* to, std::int64_t bytes) override {
    if (bytes <= 0) return;
    bind();
    check(cudaMemsetAsync(to, 0, as_size(bytes), native(stream)), "cudaMemsetAsync");
  }
  void write_word(StreamHandle stream, std::uint32_t* word, std::uint32_t value) override {
    bind();
    words_.write(native(stream), word, value);
  }
  void wait_word(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) override {
    bind();
    words_.wait(native(stream), word, value);
  }
  /// The kernel comes next, from this thread: it must find the right GPU.
  void declare(StreamHandle, const char*, std::initializer_list<Access>) override { bind(); }

  void capture_begin(StreamHandle stream) override {
    bind();
    // Other threads go on asking for events meanwhile.
    check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  GraphHandle capture_end(StreamHandle stream) override {
    bind();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(native(stream), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t runnable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&runnable, graph, 0);
    check_at_end(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(made, "cudaGraphInstantiate");
    return handle_of<GraphHandle>(runnable);
  }
  void graph_launch(GraphHandle graph, StreamHandle stream) override {
    bind();
    check(cudaGraphLaunch(native(graph), native(stream)), "cudaGraphLaunch");
  }
  void graph_destroy(GraphHandle graph) noexcept override {
    end([&] { return cudaGraphExecDestroy(native(graph)); }, "cudaGraphExecDestroy");
  }

 private:
  void check(cudaError_t error, const char* call) const { cuda::check(error, call, name_); }
  /// CUDA's current device belongs to the thread. The first call makes the context.
  void bind() const {
    thread_local int current = -1;
    if (current == index_) return;
    check(cudaSetDevice(index_), "cudaSetDevice");
    current = index_;
  }
  template <class Call>
  void end(Call call, const char* what) const noexcept {
    cudaSetDevice(index_);  // an error would come again from the call
    check_at_end(call(), what);
  }
  /// One word through a stream: communicators build on it, and some virtual GPUs do not have it.
  void try_words() {
    auto* word = static_cast<std::uint32_t*>(host_alloc(sizeof(std::uint32_t)));
    *word = 0;
    const StreamHandle stream = stream_create(Priority::high);
    const EventHandle event = event_create();
    write_word(stream, word, 7);
    wait_word(stream, word, 7);
    event_record(event, stream);
    const auto deadline = Clock::now() + std::chrono::seconds(30);
    while (!event_passed(event))
      if (Clock::now() > deadline)
        throw Error(Exit::runtime, fmt::format("{} does not answer", name_),
                    "a word that a stream should write did not come within 30 s",
                    "Look for Xid lines in dmesg");
    const bool written = *static_cast<volatile std::uint32_t*>(word) == 7;
    event_destroy(event), stream_destroy(stream), host_free(word);
    if (!written)
      throw Error(Exit::runtime, fmt::format("{} cannot write words of host memory from a stream", name_));
  }

  int index_;
  GpuTraits facts_;
  std::string name_;
  StreamWords words_;
};

}  // namespace

GpuTraits cuda_facts(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, index), "cudaDeviceGetPCIBusId");
  GpuTraits facts;
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  facts.bus = lower(bus);
  facts.uuid = uuid_text(uuid_of(index), facts.name.find(" MIG ") != std::string::npos);
  return facts;
}

std::unique_ptr<Runtime> make_cuda_runtime(int index, std::string driver) {
  return std::make_unique<CudaRuntime>(index, std::move(driver));
}

}  // namespace holdfast::cuda
