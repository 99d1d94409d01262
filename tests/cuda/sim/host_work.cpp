#include "tests/cuda/sim/cublas_stand_in.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda::sim {

namespace {
SimRuntime& simulator() { return dynamic_cast<SimRuntime&>(test::gpu()); }
}  // namespace

void enqueue_host_work(StreamHandle stream, const char* name, std::span<const Access> accesses,
                       std::function<void()> work) {
  simulator().enqueue(stream, name, accesses, std::move(work));
}

void run_stream(StreamHandle stream) {
  const EventHandle event = simulator().event_create();
  simulator().event_record(event, stream);
  while (!simulator().event_passed(event)) simulator().progress(1000);
  simulator().event_destroy(event);
}

}  // namespace holdfast::cuda::sim
