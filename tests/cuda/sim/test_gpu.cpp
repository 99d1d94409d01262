#include "tests/cuda/test_gpu.hpp"

#include <stdexcept>

#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::test {
namespace {

sim::SimRuntime& simulated() {
  static sim::SimRuntime runtime(sim::Options{.guard = true});
  return runtime;
}

}  // namespace

Runtime& gpu() { return simulated(); }

StreamHandle stream() {
  static const StreamHandle handle = gpu().stream_create(Runtime::Priority::normal);
  return handle;
}

void finish() {
  static const EventHandle event = gpu().event_create();
  gpu().event_record(event, stream());
  while (!gpu().event_passed(event))
    if (simulated().progress(1 << 20) == 0 && !gpu().event_passed(event))
      throw std::logic_error("the simulated stream waits for something that never comes:\n" +
                             simulated().pending());
}

void reseed(std::uint64_t seed) { simulated().reseed(seed); }

}  // namespace holdfast::cuda::test
