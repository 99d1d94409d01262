#include "tests/cuda/sim/sim_runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "tests/cuda/sim/sim_objects.hpp"

namespace holdfast::cuda::sim {
namespace {

std::uint64_t seed_of(const Options& options) {
  if (options.seed != 0) return options.seed;
  return static_cast<std::uint64_t>(env::get_integer("HOLDFAST_SIMT_SEED").value_or(1));
}

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto *x = static_cast<const std::byte*>(a), *y = static_cast<const std::byte*>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

SimRuntime::SimRuntime(const Options& options)
    : options_(options),
      dice_(seed_of(options)),
      memory_(options.device_bytes, options.guard || env::get_or("HOLDFAST_SIM_GUARD", "") == "1") {
  facts_ = {"Simulated GPU",
            "none",
            9,
            0,
            4,
            options.device_bytes,
            fmt::format("0000:{:02x}:00.0", options.ordinal),
            fmt::format("SIM-{}", options.ordinal)};
  if (!options.background) return;
  background_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      int ran = 0;
      try {
        if (!finding_) ran = progress_locked(16);
      } catch (...) {  // kept in finding_ for whoever calls next
      }
      if (ran > 0) {
        lock.unlock();  // let others have their turn
        std::this_thread::yield();
        lock.lock();
      } else {
        work_.wait_for(lock, std::chrono::microseconds(200));
      }
    }
  });
}

SimRuntime::~SimRuntime() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (background_.joinable()) background_.join();
  for (SimEvent* event : events_) delete event;
  for (Graph* graph : graphs_) delete graph;
  if (!finding_ || told_) return;
  // Nobody would ever hear of it.
  try {
    std::rethrow_exception(finding_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::abort();
}

// ---- memory

std::int64_t SimRuntime::free_bytes() {
  const std::scoped_lock lock(mutex_);
  return memory_.free_bytes();
}

void* SimRuntime::device_alloc(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  check_not_capturing("device_alloc");
  return memory_.device_alloc(bytes);
}

void* SimRuntime::host_alloc(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  check_not_capturing("host_alloc");
  return memory_.host_alloc(bytes);
}

void* SimRuntime::host_register(void* memory, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  check_not_capturing("host_register");
  return memory_.host_register(memory, bytes);
}

IpcHandle SimRuntime::ipc_export(void* memory) {
  const std::scoped_lock lock(mutex_);
  return memory_.ipc_export(memory);
}

void* SimRuntime::ipc_open(const IpcHandle& handle, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  return memory_.ipc_open(handle, bytes);
}

void SimRuntime::device_free(void* memory) noexcept { free_region(memory, Kind::device, "device_free"); }
void SimRuntime::host_free(void* memory) noexcept { free_region(memory, Kind::pinned, "host_free"); }
void SimRuntime::host_unregister(void* memory) noexcept {
  free_region(memory, Kind::registered, "host_unregister");
}
void SimRuntime::ipc_close(void* memory) noexcept { free_region(memory, Kind::peer, "ipc_close"); }

void SimRuntime::free_region(void* memory, Kind kind, const char* call) noexcept {
  if (memory == nullptr) return;
  const std::scoped_lock lock(mutex_);
  try {
    check_not_capturing(call);
    const Region region = memory_.whole(memory, kind, call);
    for (const auto& stream : streams_)
      for (const Operation& operation : stream->queue)
        for (const Access& access : operation.accesses)
          if (overlap(access.data, access.bytes, region.data, region.bytes)) {
            // While an error unwinds, work that will never be waited for is no news. The memory stays: work
            // may run.
            if (std::uncaught_exceptions() > 0 || !failure_.empty() || finding_) return;
            throw Finding(fmt::format("{} of memory that {} is still to touch", call, *operation.name));
          }
    races_.forget(region.data, region.bytes);
    memory_.release(region);
  } catch (...) {
    if (!finding_) finding_ = std::current_exception();
  }
}

// ---- streams and events

StreamHandle SimRuntime::stream_create(Priority) {
  const std::scoped_lock lock(mutex_);
  check_not_capturing("stream_create");
  streams_.push_back(std::make_unique<SimStream>());
  SimStream& stream = *streams_.back();
  stream.runtime = this;
  stream.line = lines_++;
  return StreamHandle{reinterpret_cast<std::uintptr_t>(&stream)};
}

/// What is enqueued still runs, as with CUDA; the stream goes with the runtime.
void SimRuntime::stream_destroy(StreamHandle handle) noexcept {
  const std::scoped_lock lock(mutex_);
  try {
    at(handle, "stream_destroy").destroyed = true;
  } catch (...) {
    if (!finding_) finding_ = std::current_exception();
  }
}

EventHandle SimRuntime::event_create() {
  const std::scoped_lock lock(mutex_);
  auto* event = new SimEvent;
  events_.insert(event);
  return EventHandle{reinterpret_cast<std::uintptr_t>(event)};
}

void SimRuntime::event_destroy(EventHandle event) noexcept {
  const std::scoped_lock lock(mutex_);
  auto* known = reinterpret_cast<SimEvent*>(event);
  if (events_.erase(known) == 1) {
    delete known;
  } else if (!finding_) {
    finding_ = std::make_exception_ptr(Finding("event_destroy of what is no event"));
  }
}

void SimRuntime::event_record(EventHandle handle, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  SimEvent& event = at(handle, "event_record");
  event.latest = std::make_shared<Record>();
  Operation operation;
  operation.what = What::record;
  operation.record = event.latest;
  operation.name = std::make_shared<const std::string>("event_record");
  add(at(stream, "event_record"), std::move(operation));
}

bool SimRuntime::event_passed(EventHandle handle) {
  const std::scoped_lock lock(mutex_);
  throw_findings();
  check_not_capturing("event_passed");
  if (!failure_.empty()) throw Error(Exit::runtime, "the simulated GPU has failed", failure_);
  SimEvent& event = at(handle, "event_passed");
  if (!event.latest) return true;
  for (auto turns = dice_.below(64) + 1; turns > 0 && !event.latest->passed; --turns)
    if (progress_locked(1) == 0) break;
  throw_findings();
  if (!event.latest->passed) return false;
  host_clock().join(event.latest->clock);
  return true;
}

void SimRuntime::stream_wait(StreamHandle stream, EventHandle handle) {
  const std::scoped_lock lock(mutex_);
  SimEvent& event = at(handle, "stream_wait");
  Operation operation;
  operation.what = What::wait_event;
  operation.record = event.latest;
  operation.name = std::make_shared<const std::string>("stream_wait");
  if (event.latest || at(stream, "stream_wait").capture) add(at(stream, "stream_wait"), std::move(operation));
}

// ---- for tests

void SimRuntime::reseed(std::uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  dice_ = Dice(seed);
}

void SimRuntime::set_device_bytes(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  memory_.set_limit(bytes);
}

int SimRuntime::progress(int operations) {
  const std::scoped_lock lock(mutex_);
  const int ran = progress_locked(operations);
  throw_findings();
  return ran;
}

void SimRuntime::fail(std::string why) {
  const std::scoped_lock lock(mutex_);
  failure_ = std::move(why);
}

std::int64_t SimRuntime::operations_run() const {
  const std::scoped_lock lock(mutex_);
  return run_;
}

std::string SimRuntime::pending() {
  const std::scoped_lock lock(mutex_);
  std::string text;
  for (const auto& stream : streams_)
    if (!stream->queue.empty())
      text += fmt::format("stream {}: {} of {}\n", stream->line, *stream->queue.front().name,
                          stream->queue.size());
  return text;
}

}  // namespace holdfast::cuda::sim
