#pragma once
// A simulated GPU for whole runs: it counts what was asked of it, and in the middle of training something
// breaks as the environment says.
#include <cstdint>
#include <optional>
#include <string>

#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::sim {

/// What happens behind the launch of so many graphs.
struct Fault {
  enum class Kind {
    gpu,   ///< the GPU is gone
    hang,  ///< the process stops
    die,   ///< the process is killed
    wait,  ///< from then on streams do not wait for each other
    free,  ///< the GPU is gone, and whoever gives memory back waits for ever
  } kind = Kind::gpu;
  int rank = 0;
  std::int64_t launches = 0;
};

/// "KIND RANK LAUNCHES", as in "hang 1 20". Throws Error (usage).
Fault fault_from_text(const std::string& text);

class FaultyRuntime final : public SimRuntime {
 public:
  FaultyRuntime(const Options& options, std::optional<Fault> fault);
  /// Says in the log how many graphs were launched, how many pieces of memory were asked for, and how many
  /// bytes of host memory were pinned in all.
  ~FaultyRuntime() override;

  void* device_alloc(std::int64_t bytes) override;
  void device_free(void* memory) noexcept override;
  void* host_alloc(std::int64_t bytes) override;
  void* host_register(void* memory, std::int64_t bytes) override;
  void stream_wait(StreamHandle stream, EventHandle event) override;
  void graph_launch(GraphHandle graph, StreamHandle stream) override;

 private:
  void strike();

  const std::optional<Fault> fault_;
  bool stuck_ = false;
  std::int64_t launches_ = 0, allocations_ = 0, pinned_bytes_ = 0;  // by the trainer's thread alone
};

}  // namespace holdfast::cuda::sim
