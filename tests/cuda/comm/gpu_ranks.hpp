#pragma once
// Ranks of an MPI test, each with a simulated GPU and the communicators of a device on it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/cuda/comm/device_communicator.hpp"
#include "src/cuda/comm/watch.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "tests/cuda/sim/sim_nccl.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"
#include "tests/support/mpi_main.hpp"

namespace holdfast::cuda::test {

/// Where the ranks of a test are.
struct Case {
  const char* name = "";
  int ranks_per_node = 0;
  bool one_gpu = false;
};

/// Everything a rank has. `ranks_per_node`: as if only so many shared a node; 0: all do.
class GpuRank {
 public:
  struct Options {
    int ranks_per_node = 0;
    std::chrono::milliseconds limit{60'000};
    std::uint64_t seed = 1;
    int nccl_version = 22809;
    bool one_gpu = false;    ///< all ranks of a node are on the same one
    bool share_gpu = false;  ///< and may have NCCL between them
    std::int64_t inbox_bytes = 1 << 16;
  };

  explicit GpuRank(const Options& options)
      : runtime(
            sim::Options{.seed = options.seed * 64 + static_cast<std::uint64_t>(tests::session().rank()) + 1,
                         .background = true,
                         .ordinal = options.one_gpu ? 0 : tests::session().rank()}),
        nccl(runtime, options.nccl_version),
        compute(runtime, "compute", {.limit = 2 * options.limit}),
        options_(options) {
    compute.on_wait([this] { watch.check(); });
  }

  CommunicatorOptions communicator_options() const {
    CommunicatorOptions out;
    out.limit = options_.limit;
    out.explain = false;
    out.inbox_bytes = options_.inbox_bytes;
    out.share_gpu = options_.share_gpu;
    out.recorder = &tests::session().flight();
    if (options_.ranks_per_node > 0)
      out.node = static_cast<std::uint64_t>(tests::session().rank() / options_.ranks_per_node) + 1;
    return out;
  }
  std::unique_ptr<comm::Communicator> host_world() const {
    return tests::session().world({.limit = options_.limit, .explain = false});
  }
  std::unique_ptr<comm::Communicator> world(Runtime& on, Nccl* with) {
    return make_device_communicator(host_world(), on, with, watch, communicator_options());
  }
  std::unique_ptr<comm::Communicator> world() { return world(runtime, &nccl); }

  sim::SimRuntime runtime;
  sim::SimNccl nccl;
  Watch watch;
  CudaStream compute;

 private:
  const Options options_;
};

/// What `call` threw as an Error (runtime).
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace holdfast::cuda::test
