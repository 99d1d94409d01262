#pragma once
// A GPU that is a host: streams are queues of operations, and whoever asks for an event runs some of them, in
// a random order that streams, events and words allow. So whatever is not ordered will sooner or later come
// in the wrong order; and a race is found even when it did no harm, because every operation says what it
// reads and writes (race_check.hpp).
//
// Nothing runs before somebody asks (event_passed() makes progress and never blocks), except with
// Options::background. All calls may come from any thread; operations run under one lock, so they must not
// call the runtime.
//
// Stricter than CUDA, where that finds mistakes early: every address must be memory that the runtime gave or
// registered; a kernel without declare() is refused; while a stream is captured nothing is allocated,
// recorded or waited for.
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "src/cuda/runtime/runtime.hpp"
#include "src/cuda/simt/simt.hpp"
#include "tests/cuda/sim/fibers.hpp"
#include "tests/cuda/sim/finding.hpp"
#include "tests/cuda/sim/race_check.hpp"
#include "tests/cuda/sim/sim_memory.hpp"

namespace holdfast::cuda::sim {

struct Options {
  std::uint64_t seed = 0;  ///< 0: $HOLDFAST_SIMT_SEED, else 1
  std::int64_t device_bytes = std::int64_t{8} << 30;
  bool audit = true;  ///< repeated work is recorded again and compared (Runtime::audits_graphs)
  bool background =
      false;  ///< a thread makes progress too: for ranks that wait for each other outside the runtime
  bool guard = false;  ///< or $HOLDFAST_SIM_GUARD=1: see SimMemory::open()
  int ordinal = 0;     ///< of the GPU: part of its uuid
};

class SimRuntime : public Runtime {
 public:
  explicit SimRuntime(const Options& options = {});
  ~SimRuntime() override;

  // Runtime
  const GpuTraits& facts() const override { return facts_; }
  std::int64_t free_bytes() override;
  void* device_alloc(std::int64_t bytes) override;
  void device_free(void* memory) noexcept override;
  void* host_alloc(std::int64_t bytes) override;
  void host_free(void* memory) noexcept override;
  void* host_register(void* memory, std::int64_t bytes) override;
  void host_unregister(void* memory) noexcept override;
  IpcHandle ipc_export(void* memory) override;
  void* ipc_open(const IpcHandle& handle, std::int64_t bytes) override;
  void ipc_close(void* memory) noexcept override;
  StreamHandle stream_create(Priority priority) override;
  void stream_destroy(StreamHandle stream) noexcept override;
  EventHandle event_create() override;
  void event_destroy(EventHandle event) noexcept override;
  void event_record(EventHandle event, StreamHandle stream) override;
  bool event_passed(EventHandle event) override;
  void stream_wait(StreamHandle stream, EventHandle event) override;
  void copy(StreamHandle stream, void* to, const void* from, std::int64_t bytes) override;
  void zero(StreamHandle stream, void* to, std::int64_t bytes) override;
  void write_word(StreamHandle stream, std::uint32_t* word, std::uint32_t value) override;
  void wait_word(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) override;
  void declare(StreamHandle stream, const char* name, std::initializer_list<Access> accesses) override;
  void capture_begin(StreamHandle stream) override;
  GraphHandle capture_end(StreamHandle stream) override;
  void graph_launch(GraphHandle graph, StreamHandle stream) override;
  void graph_destroy(GraphHandle graph) noexcept override;
  bool audits_graphs() const override { return options_.audit; }
  void audit_graphs(GraphHandle stored, GraphHandle again) override;

  // For what has no kernel of ours: a host function in the place of one.

  /// `work` runs once, in the stream's order. It says itself what it touches (no declare()). `arguments`:
  /// what audits of graphs compare besides the name and the accesses.
  void enqueue(StreamHandle stream, const char* name, std::span<const Access> accesses,
               std::function<void()> work, std::span<const std::byte> arguments = {});
  /// `work` is called again and again until it returns true; nothing behind it on the stream starts before
  /// that. Not in graphs.
  void enqueue_polling(StreamHandle stream, const char* name, std::span<const Access> accesses,
                       std::function<bool()> work);

  // For tests

  void reseed(std::uint64_t seed);
  void set_device_bytes(std::int64_t bytes);
  /// Runs up to `operations` that can run, of streams chosen at random. Returns how many ran.
  int progress(int operations);
  /// From now on the device has failed: every event_passed() throws Error (runtime) with this text.
  void fail(std::string why);
  /// What each stream's next operation is, for people who wonder why nothing moves.
  std::string pending();
  std::int64_t operations_run() const;

 private:
  struct Record;
  struct Operation;
  struct SimStream;  // what the handles point to: sim_objects.hpp
  struct SimEvent;
  struct Graph;
  friend void simt::enqueue(StreamHandle stream, simt::Launch launch);

  SimStream& at(StreamHandle stream, const char* call);
  SimEvent& at(EventHandle event, const char* call);
  void add(SimStream& stream, Operation operation);
  void add_kernel(SimStream& stream, simt::Launch launch);
  void check_access(const std::string& what, const void* data, std::int64_t bytes) const;
  void check_word(const std::string& what, const void* word) const;
  void check_not_capturing(const char* call) const;
  bool run_head(SimStream& stream);
  bool run_work(Operation& operation);
  int progress_locked(int operations);
  Clock& host_clock();
  void free_region(void* memory, Kind kind, const char* call) noexcept;
  void throw_findings();

  Options options_;
  GpuTraits facts_;
  mutable std::mutex mutex_;
  Dice dice_;
  SimMemory memory_;
  RaceCheck races_;
  std::vector<std::unique_ptr<SimStream>> streams_;
  std::set<SimEvent*> events_;
  std::set<Graph*> graphs_;
  std::unordered_map<const void*, Clock> words_;      ///< what the last writer of this process knew
  std::unordered_map<std::thread::id, Clock> hosts_;  ///< what each thread of the host has waited for
  std::uint32_t lines_ = 0;
  std::exception_ptr finding_;  ///< the first one
  std::string failure_;
  bool told_ = false;
  std::int64_t run_ = 0;
  std::condition_variable work_;
  bool ending_ = false;
  std::thread background_;
};

}  // namespace holdfast::cuda::sim
