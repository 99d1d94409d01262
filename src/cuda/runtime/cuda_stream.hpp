#pragma once
// The GPU's stream behind the trainer's interface: tickets from a ring of events, pinned staging for copies
// from and to any host memory, and graphs of work that repeats.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/cuda/runtime/runtime.hpp"
#include "src/tensor/stream.hpp"

namespace holdfast::cuda {

struct StreamOptions {
  std::chrono::milliseconds limit{60'000};  ///< whoever waits longer gets an Error
  Runtime::Priority priority = Runtime::Priority::normal;
  std::size_t largest_number_of_graphs = 4096;  ///< other keys' work runs as it is
};

/// Work is enqueued by one thread at a time; any thread may ask for its events.
///
/// Memory of copy() and zero(): of the device, or host memory that the runtime gave. Steady state allocates
/// nothing.
class CudaStream : public tensor::Stream {
 public:
  /// `name` is what errors call it: "compute". The runtime outlives the stream.
  CudaStream(Runtime& runtime, std::string name, const StreamOptions& options = {});
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  /// `stream`, which must be one of these: kernels of this backend run on no other.
  static CudaStream& of(tensor::Stream& stream);
  StreamHandle handle() const { return handle_; }
  Runtime& runtime() const { return runtime_; }

  /// When as many events have not passed yet as the ring has (1024), the host waits for the oldest.
  tensor::Event record() override;
  /// An event of this runtime is waited for by the GPU; any other by the host, now.
  void wait(const tensor::Event& event) override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void zero(void* to, std::int64_t bytes) override;
  void upload(void* to, const void* from, std::int64_t bytes) override;
  void download(void* to, const void* from, std::int64_t bytes) override;
  /// A key's first call runs the work, so that whatever is built when it is first needed exists; the second
  /// records it; from then on the recording is launched.
  void repeat(std::span<const std::uint64_t> key, tensor::Task work) override;

  /// Off: repeat() runs the work and remembers nothing. For a time in which kernels do not enqueue what they
  /// will later.
  void use_graphs(bool on) { use_graphs_ = on; }
  std::size_t graphs() const { return graph_count_; }

  /// Called again and again by whoever waits for this stream; throws what somebody else has found out (a
  /// communicator that failed), since then the wait may never end. Set once, before the first wait.
  void on_wait(std::function<void()> hook) { hook_ = std::move(hook); }

 private:
  /// Events of the stream: ticket t lies in place t modulo the ring's length until that ticket + length is
  /// recorded, which is after t has passed.
  class Line : public tensor::Timeline {
   public:
    explicit Line(CudaStream& stream) : stream_(stream) {}
    bool passed(std::uint64_t ticket) const override;
    void wait(std::uint64_t ticket) override;

    static constexpr std::size_t length = 1024;
    struct Place {
      EventHandle event{};
      std::atomic<std::uint64_t> ticket{0};
    };
    Place& place(std::uint64_t ticket) { return places_[ticket % length]; }
    const Place& place(std::uint64_t ticket) const { return places_[ticket % length]; }
    CudaStream& stream() const { return stream_; }

   private:
    CudaStream& stream_;
    std::vector<Place> places_{length};
  };

  /// A part of pinned memory. The GPU is done with it once `used` has passed.
  struct Part {
    std::byte* memory = nullptr;
    tensor::Event used;
  };
  static constexpr std::int64_t part_bytes = 1 << 20;

  struct Repeated {
    bool recorded = false;
    GraphHandle graph{};
  };
  struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::span<const std::uint64_t> key) const;
  };
  struct KeyEqual {
    using is_transparent = void;
    bool operator()(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) const;
  };

  void allocate_staging();
  GraphHandle capture(const tensor::Task& work);
  void expect_not_recording() const;

  Runtime& runtime_;
  std::string name_;
  StreamOptions options_;
  StreamHandle handle_;
  Line line_;
  std::atomic<std::uint64_t> recorded_{0};  ///< the latest ticket
  std::function<void()> hook_;
  std::array<Part, 2> up_, down_;
  std::size_t filling_ = 0;  ///< the part of `up_` that the next upload goes to
  std::int64_t filled_ = 0;  ///< bytes of it that are taken
  std::unordered_map<std::vector<std::uint64_t>, Repeated, KeyHash, KeyEqual> repeated_;
  std::size_t graph_count_ = 0;
  bool use_graphs_ = true, recording_ = false;
};

}  // namespace holdfast::cuda
