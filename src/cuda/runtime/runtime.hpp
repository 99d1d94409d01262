#pragma once
// The few things the backend asks of a GPU, so that everything above can also run without one:
// cuda_runtime.cpp does them with CUDA; the tests' simulator does them on the host, in any order that streams
// and events allow.
//
// Every call throws Error (runtime) that names it. Enqueueing calls return at once; what fails later is
// reported by whoever asks for the event behind it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace holdfast::cuda {

/// Addresses in the runtime's own sense: cudaStream_t, cudaEvent_t, cudaGraphExec_t.
enum class StreamHandle : std::uintptr_t {};
enum class EventHandle : std::uintptr_t {};
enum class GraphHandle : std::uintptr_t {};

/// Device memory as another process may open it.
using IpcHandle = std::array<std::byte, 64>;

struct GpuTraits {
  std::string name;          ///< "NVIDIA H200"
  std::string driver;        ///< "580.65.06", or what else is known
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::string bus;   ///< "0000:3b:00.0"
  std::string uuid;  ///< equal only for the same GPU (or MIG slice)
};

/// Bytes that a kernel reads or writes, for whoever checks that streams do not race.
struct Access {
  const void* data = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};
inline Access reads(const void* data, std::int64_t bytes) { return {data, bytes, false}; }
inline Access writes(const void* data, std::int64_t bytes) { return {data, bytes, true}; }

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const GpuTraits& facts() const = 0;
  virtual std::int64_t free_bytes() = 0;

  // Memory: aligned to 4096 at least
  virtual void* device_alloc(std::int64_t bytes) = 0;
  virtual void device_free(void* memory) noexcept = 0;
  /// Pinned, at the same address on the GPU.
  virtual void* host_alloc(std::int64_t bytes) = 0;
  virtual void host_free(void* memory) noexcept = 0;
  /// Pins memory of ours (shared with other processes, say), so that streams may wait for words in it.
  /// Returns its address on the GPU.
  virtual void* host_register(void* memory, std::int64_t bytes) = 0;
  virtual void host_unregister(void* memory) noexcept = 0;
  /// Of a whole device_alloc().
  virtual IpcHandle ipc_export(void* memory) = 0;
  /// Device memory of another process on this node, on the same or on a peer GPU; of this process's own: not
  /// allowed.
  virtual void* ipc_open(const IpcHandle& handle, std::int64_t bytes) = 0;
  virtual void ipc_close(void* memory) noexcept = 0;

  // Streams and events
  enum class Priority { normal, high };
  virtual StreamHandle stream_create(Priority priority) = 0;
  virtual void stream_destroy(StreamHandle stream) noexcept = 0;
  virtual EventHandle event_create() = 0;
  virtual void event_destroy(EventHandle event) noexcept = 0;
  virtual void event_record(EventHandle event, StreamHandle stream) = 0;
  /// The latest record has passed. Throws when the device has failed.
  virtual bool event_passed(EventHandle event) = 0;
  virtual void stream_wait(StreamHandle stream, EventHandle event) = 0;

  // Work
  virtual void copy(StreamHandle stream, void* to, const void* from, std::int64_t bytes) = 0;
  virtual void zero(StreamHandle stream, void* to, std::int64_t bytes) = 0;
  /// Writes a word of registered or pinned host memory (GPU address) behind all work so far, visible to the
  /// whole system.
  virtual void write_word(StreamHandle stream, std::uint32_t* word, std::uint32_t value) = 0;
  /// Later work starts once int32(*word - value) >= 0.
  virtual void wait_word(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) = 0;
  /// Says what the kernel that is enqueued next reads and writes. Nothing else happens.
  virtual void declare(StreamHandle stream, const char* name, std::initializer_list<Access> accesses) = 0;

  // Graphs: what is enqueued between begin and end is recorded instead of run.
  virtual void capture_begin(StreamHandle stream) = 0;
  virtual GraphHandle capture_end(StreamHandle stream) = 0;
  virtual void graph_launch(GraphHandle graph, StreamHandle stream) = 0;
  virtual void graph_destroy(GraphHandle graph) noexcept = 0;
  /// True for whoever proves that the keys of Stream::repeat() are complete: work is then recorded again
  /// before each launch, and audit_graphs() throws when it differs from the stored graph in anything that the
  /// graph would repeat.
  virtual bool audits_graphs() const { return false; }
  virtual void audit_graphs(GraphHandle /*stored*/, GraphHandle /*again*/) {}
};

}  // namespace holdfast::cuda
