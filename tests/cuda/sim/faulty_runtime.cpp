#include "tests/cuda/sim/faulty_runtime.hpp"

#include <signal.h>
#include <unistd.h>

#include <sstream>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::cuda::sim {

Fault fault_from_text(const std::string& text) {
  std::istringstream in(text);
  std::string kind, rest;
  Fault fault;
  if (in >> kind >> fault.rank >> fault.launches && !(in >> rest)) {
    if (kind == "gpu") return fault.kind = Fault::Kind::gpu, fault;
    if (kind == "hang") return fault.kind = Fault::Kind::hang, fault;
    if (kind == "die") return fault.kind = Fault::Kind::die, fault;
    if (kind == "wait") return fault.kind = Fault::Kind::wait, fault;
    if (kind == "free") return fault.kind = Fault::Kind::free, fault;
  }
  throw Error(Exit::usage, "'" + text + "' is no fault", "it reads KIND RANK LAUNCHES",
              "KIND is gpu, hang, die, wait or free");
}

FaultyRuntime::FaultyRuntime(const Options& options, std::optional<Fault> fault)
    : SimRuntime(options), fault_(fault) {}

FaultyRuntime::~FaultyRuntime() {
  log::info("simulated GPU: {} graphs launched, {} pieces of memory, {} bytes of host memory pinned",
            launches_, allocations_, pinned_bytes_);
}

void* FaultyRuntime::device_alloc(std::int64_t bytes) {
  ++allocations_;
  return SimRuntime::device_alloc(bytes);
}

void FaultyRuntime::device_free(void* memory) noexcept {
  while (stuck_) ::pause();
  SimRuntime::device_free(memory);
}

void* FaultyRuntime::host_alloc(std::int64_t bytes) {
  ++allocations_;
  pinned_bytes_ += bytes;
  return SimRuntime::host_alloc(bytes);
}

void* FaultyRuntime::host_register(void* memory, std::int64_t bytes) {
  ++allocations_;
  pinned_bytes_ += bytes;
  return SimRuntime::host_register(memory, bytes);
}

void FaultyRuntime::stream_wait(StreamHandle stream, EventHandle event) {
  const bool left_out = fault_ && fault_->kind == Fault::Kind::wait && launches_ >= fault_->launches;
  if (!left_out) SimRuntime::stream_wait(stream, event);
}

void FaultyRuntime::graph_launch(GraphHandle graph, StreamHandle stream) {
  if (fault_ && launches_ == fault_->launches) strike();
  ++launches_;
  SimRuntime::graph_launch(graph, stream);
}

void FaultyRuntime::strike() {
  switch (fault_->kind) {
    case Fault::Kind::gpu:
      return fail("it has fallen off the bus");
    case Fault::Kind::hang:
      ::raise(SIGSTOP);
      return;
    case Fault::Kind::die:
      ::raise(SIGKILL);
      return;
    case Fault::Kind::wait:
      return;
    case Fault::Kind::free:
      stuck_ = true;
      return fail("it has fallen off the bus");
  }
}

}  // namespace holdfast::cuda::sim
