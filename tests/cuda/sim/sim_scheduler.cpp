// The part of SimRuntime that runs operations, keeps who knows of what, and records graphs.
#include <fmt/format.h>

#include <atomic>
#include <numeric>

#include "tests/cuda/sim/sim_objects.hpp"

namespace holdfast::cuda::sim {

SimRuntime::SimStream& SimRuntime::at(StreamHandle handle, const char* call) {
  for (const auto& stream : streams_)
    if (reinterpret_cast<std::uintptr_t>(stream.get()) == static_cast<std::uintptr_t>(handle) &&
        !stream->destroyed)
      return *stream;
  throw Finding(fmt::format("{} on what is no stream (or was destroyed)", call));
}

SimRuntime::SimEvent& SimRuntime::at(EventHandle handle, const char* call) {
  auto* event = reinterpret_cast<SimEvent*>(handle);
  if (!events_.contains(event)) throw Finding(fmt::format("{} of what is no event (or was destroyed)", call));
  return *event;
}

void SimRuntime::check_access(const std::string& what, const void* data, std::int64_t bytes) const {
  if (bytes > 0 && memory_.find(data, bytes) == nullptr)
    throw Finding(fmt::format("{} touches {} bytes at {}, which the GPU cannot reach or has not all of", what,
                              bytes, data));
}

void SimRuntime::check_word(const std::string& what, const void* word) const {
  const Region* region = memory_.find(word, sizeof(std::uint32_t));
  if (region == nullptr || (region->kind != Kind::pinned && region->kind != Kind::registered) ||
      reinterpret_cast<std::uintptr_t>(word) % sizeof(std::uint32_t) != 0)
    throw Finding(fmt::format(
        "{} at {}, which is no aligned word of pinned or registered memory as the GPU sees it", what, word));
}

void SimRuntime::check_not_capturing(const char* call) const {
  for (const auto& stream : streams_)
    if (stream->capture && stream->capturing == std::this_thread::get_id())
      throw Finding(fmt::format("{} while this thread captures a stream", call));
}

/// Behind the stream's other work, or into the graph that is being recorded.
void SimRuntime::add(SimStream& stream, Operation operation) {
  throw_findings();
  if (stream.declared)
    throw Finding(fmt::format("{} was declared, but then came {} instead of its kernel", *stream.declared,
                              *operation.name));
  for (const Access& access : operation.accesses) check_access(*operation.name, access.data, access.bytes);
  if (stream.capture) {
    if (operation.what == What::record || operation.what == What::wait_event ||
        operation.what == What::polling || operation.what == What::wait_word ||
        operation.what == What::write_word)
      throw Finding(fmt::format("{} while the stream is captured", *operation.name));
    stream.capture->operations.push_back(std::move(operation));
    return;
  }
  operation.host = host_clock();
  stream.queue.push_back(std::move(operation));
  if (options_.background) work_.notify_one();
}

/// A thread that comes later knows what the others know now.
Clock& SimRuntime::host_clock() {
  const auto [at, fresh] = hosts_.try_emplace(std::this_thread::get_id());
  if (fresh)
    for (const auto& [thread, clock] : hosts_) at->second.join(clock);
  return at->second;
}

void SimRuntime::throw_findings() {
  if (!finding_) return;
  told_ = true;
  std::rethrow_exception(finding_);
}

bool SimRuntime::run_work(Operation& operation) {
  struct Opened {
    Opened(SimMemory& to_open, const Operation& of) : memory(to_open), operation(of) {
      memory.open(operation.accesses, operation.name->c_str());
    }
    ~Opened() { memory.close(operation.accesses); }
    SimMemory& memory;
    const Operation& operation;
  } opened(memory_, operation);
  return operation.run();
}

/// Runs the stream's first operation if it can.
bool SimRuntime::run_head(SimStream& stream) {
  Operation& operation = stream.queue.front();
  if (operation.what == What::wait_event) {
    if (!operation.record->passed) return false;
    stream.clock.join(operation.record->clock);
  }
  if (operation.what == What::wait_word) {
    const std::uint32_t now = std::atomic_ref(*operation.word).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(now - operation.value) < 0) return false;
    if (const auto writer = words_.find(operation.word); writer != words_.end())
      stream.clock.join(writer->second);
  }
  if (operation.what == What::polling && !run_work(operation)) return false;

  stream.clock.join(operation.host);
  const Epoch epoch = stream.clock.tick(stream.line);
  const auto name =
      operation.accesses.empty()
          ? operation.name
          : std::make_shared<const std::string>(fmt::format("{} on stream {}", *operation.name, stream.line));
  if (auto race = races_.touch({epoch, &stream.clock, name}, operation.accesses)) throw Finding(*race);
  switch (operation.what) {
    case What::record:
      operation.record->clock = stream.clock;
      operation.record->passed = true;
      break;
    case What::write_word:
      words_[operation.word] = stream.clock;
      std::atomic_ref(*operation.word).store(operation.value, std::memory_order_release);
      break;
    case What::kernel:
    case What::copy:
    case What::zero:
    case What::host:
      run_work(operation);
      break;
    case What::polling:
    case What::wait_word:
    case What::wait_event:
      break;
  }
  stream.queue.pop_front();
  ++run_;
  return true;
}

int SimRuntime::progress_locked(int operations) {
  int ran = 0;
  try {
    while (ran < operations) {
      // Streams in random order, until one can go on.
      const std::size_t n = streams_.size(), first = n == 0 ? 0 : dice_.below(n);
      std::size_t step = n <= 1 ? 1 : 1 + dice_.below(n - 1);
      while (n > 1 && std::gcd(step, n) != 1) step = step % n + 1;
      bool moved = false;
      for (std::size_t i = 0; i < n && !moved; ++i) {
        SimStream& stream = *streams_[(first + i * step) % n];
        moved = !stream.queue.empty() && run_head(stream);
      }
      if (!moved) break;
      ++ran;
    }
  } catch (...) {
    if (!finding_) finding_ = std::current_exception();
  }
  return ran;
}

// ---- graphs

void SimRuntime::capture_begin(StreamHandle handle) {
  const std::scoped_lock lock(mutex_);
  SimStream& stream = at(handle, "capture_begin");
  check_not_capturing("capture_begin");
  if (stream.declared) throw Finding("capture_begin between declare() and the kernel");
  stream.capture = std::make_unique<Graph>();
  stream.capturing = std::this_thread::get_id();
}

GraphHandle SimRuntime::capture_end(StreamHandle handle) {
  const std::scoped_lock lock(mutex_);
  SimStream& stream = at(handle, "capture_end");
  if (!stream.capture) throw Finding("capture_end without capture_begin");
  if (stream.declared)
    throw Finding(fmt::format("capture_end between the declare() of {} and its kernel", *stream.declared));
  Graph* graph = stream.capture.release();
  graphs_.insert(graph);
  return GraphHandle{reinterpret_cast<std::uintptr_t>(graph)};
}

void SimRuntime::graph_launch(GraphHandle handle, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (!graphs_.contains(graph)) throw Finding("graph_launch of what is no graph (or was destroyed)");
  check_not_capturing("graph_launch");
  for (const Operation& operation : graph->operations) add(at(stream, "graph_launch"), operation);
}

void SimRuntime::graph_destroy(GraphHandle handle) noexcept {
  const std::scoped_lock lock(mutex_);
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (graphs_.erase(graph) == 1) {
    delete graph;
  } else if (!finding_) {
    finding_ = std::make_exception_ptr(Finding("graph_destroy of what is no graph"));
  }
}

void SimRuntime::audit_graphs(GraphHandle stored, GraphHandle again) {
  const std::scoped_lock lock(mutex_);
  auto *a = reinterpret_cast<Graph*>(stored), *b = reinterpret_cast<Graph*>(again);
  if (!graphs_.contains(a) || !graphs_.contains(b)) throw Finding("audit_graphs of what is no graph");
  const auto differ = [](std::size_t i, const Operation& x, const char* what) {
    return Finding(
        fmt::format("the key of a repeated piece of work is not complete: its operation {} ({}) has another "
                    "{} than when it was recorded",
                    i, *x.name, what));
  };
  for (std::size_t i = 0; i < std::min(a->operations.size(), b->operations.size()); ++i) {
    const Operation &x = a->operations[i], &y = b->operations[i];
    if (x.what != y.what || *x.name != *y.name) throw differ(i, x, "name");
    if (x.accesses.size() != y.accesses.size()) throw differ(i, x, "number of accesses");
    for (std::size_t k = 0; k < x.accesses.size(); ++k)
      if (x.accesses[k].data != y.accesses[k].data || x.accesses[k].bytes != y.accesses[k].bytes ||
          x.accesses[k].writes != y.accesses[k].writes)
        throw differ(i, x, "access");
    if (x.arguments != y.arguments) throw differ(i, x, "argument, grid or block");
  }
  if (a->operations.size() != b->operations.size())
    throw Finding(fmt::format(
        "the key of a repeated piece of work is not complete: {} operations were recorded, now there are {}",
        a->operations.size(), b->operations.size()));
}

}  // namespace holdfast::cuda::sim
