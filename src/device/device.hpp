#pragma once
// Where a rank's tensors lie and its work runs. The trainer knows nothing else of it: the same loop runs on
// the host and on a GPU.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"
#include "src/flight/recorder.hpp"
#include "src/kernels/kernels.hpp"
#include "src/tensor/stream.hpp"

namespace holdfast::device {

/// What a device must know of the run.
struct DeviceOptions {
  int local_rank = 0;                          ///< this rank's place among the ranks of its node
  int local_ranks = 1;                         ///< ranks of its node
  int threads = 0;                             ///< of CPU kernels; 0: what OpenMP offers
  bool deterministic = true;                   ///< the same bits at every run (GPU; CPU kernels always are)
  std::chrono::milliseconds limit{60'000};     ///< nothing is waited for longer
  flight::FlightRecorder* recorder = nullptr;  ///< of what its communicators do; null: nowhere
  bool explain = true;                         ///< a time-out also puts that record into the log
};

class Device {
 public:
  virtual ~Device() = default;
  /// For people: "CPU, 2 threads", "NVIDIA H200 (139.8 GiB), driver 580.65".
  virtual std::string describe() const = 0;
  /// Its name as the vendor gives it; "" of a CPU.
  virtual std::string product() const { return ""; }
  /// Bytes of its memory that are in use, by whomever; 0 where that is the host's. Throws Error.
  virtual std::int64_t used_bytes() { return 0; }
  /// Its memory is the host's: what the host writes there needs no copy.
  virtual bool is_host() const = 0;

  /// For the compute stream.
  virtual kernels::Kernels& kernels() = 0;
  /// For the streams of communicators (comm::OrderedReducer).
  virtual kernels::Kernels& reduce_kernels() = 0;
  virtual tensor::Stream& compute() = 0;
  /// Runs beside compute: copies to and from the host.
  virtual tensor::Stream& side() = 0;

  /// Memory of the device, zeroed, aligned to 4096, for as long as the device lives. An Error (runtime) says
  /// how much was asked for, for what, and how much there is.
  virtual std::span<std::byte> allocate(std::int64_t bytes, std::string_view what) = 0;
  /// Host memory that the device reads and writes in place and copies at full speed; else the same.
  virtual std::span<std::byte> allocate_host(std::int64_t bytes, std::string_view what) = 0;
  /// Somebody else's host memory, until unpin(): copies to and from it then run at full speed beside other
  /// work. The address by which streams know it.
  virtual std::byte* pin(std::span<std::byte> memory) { return memory.data(); }
  /// `memory`: what pin() was given. Nothing uses it any more.
  virtual void unpin(std::span<std::byte> /*memory*/) noexcept {}

  /// The same group with bulk operations on this device's memory. `host` is how its ranks reach each other
  /// otherwise, and becomes part of it. Collective.
  virtual std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) = 0;
  /// This rank ends with an error, and its communicators are about to go: whose work waits for it hears why,
  /// where there is a way to tell.
  virtual void give_up(const Error& /*why*/) noexcept {}

  /// Whether Stream::repeat() of the compute stream replays; off while single kernels are timed.
  virtual void replay(bool on) = 0;

  /// While on, kernels enqueue nothing and only note what they were asked for.
  virtual void take_notes(bool on) = 0;
  /// Choices of algorithms for what was noted: those in `known` (or ""), others measured now. A text for
  /// use_choices(), "" when there is nothing to choose.
  virtual std::string choices(std::string_view known) = 0;
  /// Bits depend on it: part of the kernels' identity. An Error (usage) when `text` was made for another
  /// device or library.
  virtual void use_choices(std::string_view text) = 0;
};

/// The host itself.
std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options);

}  // namespace holdfast::device
