// record() gives the next ticket and records the event at its place in the ring; if the ticket that was there
// before has not passed, the host waits for it first. So a ticket that another one has replaced at its place
// has passed, without a look at the GPU. The host waits for an event by asking again and again, with pauses
// of up to 0.1 ms: it calls the hook in each turn, and gives up with an Error at the limit.
//
// upload() and download() have two parts of 1 MiB of pinned memory each, allocated at the first use; a part
// is used again once its event has passed. repeat() goes through its three states by key. A capture that
// fails is ended and thrown away, and the next call of that key tries again. Inside a capture waiting,
// recording, upload() and download() are defects of the caller. The destructor waits 5 s at most for copies,
// and then leaks the pinned memory.
#include "src/cuda/runtime/cuda_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast::cuda {
namespace {

/// Between two looks at an event: at first none, since most waits are short, then longer and longer, so that
/// a core is not burnt for nothing.
class Backoff {
 public:
  void pause() {
    if (Clock::now() - begin_ < std::chrono::microseconds(50)) return;
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, std::chrono::microseconds(100));
  }

 private:
  Clock::time_point begin_ = Clock::now();
  std::chrono::microseconds sleep_{20};
};

}  // namespace

CudaStream::CudaStream(Runtime& runtime, std::string name, const StreamOptions& options)
    : runtime_(runtime),
      name_(std::move(name)),
      options_(options),
      handle_(runtime.stream_create(options.priority)),
      line_(*this) {
  for (std::uint64_t i = 0; i < Line::length; ++i) line_.place(i).event = runtime_.event_create();
}

CudaStream::~CudaStream() {
  bool idle = true;
  if (up_[0].memory != nullptr) {
    // Pinned memory may go once no copy uses it. If the GPU hangs, better leak than hang with it.
    options_.limit = std::min(options_.limit, std::chrono::milliseconds(5'000));
    try {
      record().wait();
    } catch (...) {
      idle = false;
    }
    if (idle) runtime_.host_free(up_[0].memory);
  }
  for (const auto& [key, repeated] : repeated_)
    if (repeated.recorded) runtime_.graph_destroy(repeated.graph);
  for (std::uint64_t i = 0; i < Line::length; ++i) runtime_.event_destroy(line_.place(i).event);
  runtime_.stream_destroy(handle_);
}

CudaStream& CudaStream::of(tensor::Stream& stream) {
  auto* own = dynamic_cast<CudaStream*>(&stream);
  expects(own != nullptr, "work of the CUDA backend is enqueued on a stream of the CUDA backend");
  return *own;
}

void CudaStream::expect_not_recording() const {
  expects(!recording_, "repeated work neither waits, records, uploads nor downloads");
}

// ---- events

bool CudaStream::Line::passed(std::uint64_t ticket) const {
  const Place& place = this->place(ticket);
  // A place is taken again only after its ticket has passed.
  return ticket == 0 || place.ticket.load(std::memory_order_acquire) != ticket ||
         stream_.runtime_.event_passed(place.event);
}

void CudaStream::Line::wait(std::uint64_t ticket) {
  const auto deadline = Deadline::in(stream_.options_.limit);
  Backoff backoff;
  for (;;) {
    const bool done = passed(ticket);
    if (stream_.hook_) stream_.hook_();  // also behind the work: it may have been let go with wrong results
    if (done) return;
    if (deadline.passed())
      throw Error(Exit::runtime,
                  fmt::format("the GPU has not finished its work on the stream \"{}\"", stream_.name_),
                  fmt::format("event {} of {} did not pass within {} ms", ticket, stream_.recorded_.load(),
                              stream_.options_.limit.count()),
                  "does the GPU hang, or does a peer not come?");
    backoff.pause();
  }
}

tensor::Event CudaStream::record() {
  expect_not_recording();
  const std::uint64_t ticket = recorded_ + 1;
  Line::Place& place = line_.place(ticket);
  if (const std::uint64_t before = place.ticket.load(std::memory_order_relaxed); before != 0)
    line_.wait(before);
  runtime_.event_record(place.event, handle_);
  place.ticket.store(ticket, std::memory_order_release);
  recorded_ = ticket;
  return {&line_, ticket};
}

void CudaStream::wait(const tensor::Event& event) {
  expect_not_recording();
  const auto* line = dynamic_cast<const Line*>(event.line);
  if (line == nullptr || &line->stream().runtime_ != &runtime_) return event.wait();
  const Line::Place& place = line->place(event.ticket);
  if (place.ticket.load(std::memory_order_acquire) == event.ticket && &line->stream() != this)
    runtime_.stream_wait(handle_, place.event);
}

// ---- copies

void CudaStream::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) runtime_.copy(handle_, to, from, bytes);
}

void CudaStream::zero(void* to, std::int64_t bytes) {
  if (bytes > 0) runtime_.zero(handle_, to, bytes);
}

void CudaStream::allocate_staging() {
  if (up_[0].memory != nullptr) return;
  auto* memory = static_cast<std::byte*>(runtime_.host_alloc(4 * part_bytes));
  for (Part* part : {&up_[0], &up_[1], &down_[0], &down_[1]}) {
    part->memory = memory;
    memory += part_bytes;
  }
}

/// Small uploads share a part, so that the many small ones of a step cost no event each.
void CudaStream::upload(void* to, const void* from, std::int64_t bytes) {
  expect_not_recording();
  allocate_staging();
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    if (filled_ >= part_bytes) {
      up_[filling_].used = record();
      filling_ = (filling_ + 1) % up_.size();
      filled_ = 0;
      up_[filling_].used.wait();
    }
    const std::int64_t piece = std::min(bytes, part_bytes - filled_);
    std::byte* staged = up_[filling_].memory + filled_;
    std::memcpy(staged, source, piece);
    runtime_.copy(handle_, target, staged, piece);
    filled_ += (piece + 63) / 64 * 64;
    target += piece;
    source += piece;
    bytes -= piece;
  }
}

/// While one part is copied to its place the next is on its way.
void CudaStream::download(void* to, const void* from, std::int64_t bytes) {
  expect_not_recording();
  allocate_staging();
  const std::int64_t pieces = std::max<std::int64_t>(1, (bytes + part_bytes - 1) / part_bytes);
  const auto size_of = [&](std::int64_t i) {
    return std::clamp<std::int64_t>(bytes - i * part_bytes, 0, part_bytes);
  };
  const auto start = [&](std::int64_t i) {
    Part& part = down_[as_size(i) % down_.size()];
    copy(part.memory, static_cast<const std::byte*>(from) + i * part_bytes, size_of(i));
    part.used = record();
  };
  start(0);
  for (std::int64_t i = 0; i < pieces; ++i) {
    if (i + 1 < pieces) start(i + 1);
    Part& part = down_[as_size(i) % down_.size()];
    part.used.wait();
    if (size_of(i) > 0) std::memcpy(static_cast<std::byte*>(to) + i * part_bytes, part.memory, size_of(i));
  }
}

// ---- repeated work

std::size_t CudaStream::KeyHash::operator()(std::span<const std::uint64_t> key) const {
  std::uint64_t hash = key.size();
  for (const std::uint64_t word : key) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

bool CudaStream::KeyEqual::operator()(std::span<const std::uint64_t> a,
                                      std::span<const std::uint64_t> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

GraphHandle CudaStream::capture(const tensor::Task& work) {
  runtime_.capture_begin(handle_);
  recording_ = true;
  try {
    work();
  } catch (...) {
    recording_ = false;
    try {
      runtime_.graph_destroy(runtime_.capture_end(handle_));
    } catch (...) {  // what the work threw says more
    }
    throw;
  }
  recording_ = false;
  return runtime_.capture_end(handle_);
}

void CudaStream::repeat(std::span<const std::uint64_t> key, tensor::Task work) {
  if (!use_graphs_ || recording_) return work();
  auto known = repeated_.find(key);
  if (known == repeated_.end()) {
    if (repeated_.size() < options_.largest_number_of_graphs)
      repeated_.emplace(std::vector<std::uint64_t>(key.begin(), key.end()), Repeated{});
    return work();
  }
  Repeated& repeated = known->second;
  if (!repeated.recorded) {
    repeated.graph = capture(work);
    repeated.recorded = true;
    ++graph_count_;
  } else if (runtime_.audits_graphs()) {
    const GraphHandle again = capture(work);
    try {
      runtime_.audit_graphs(repeated.graph, again);
    } catch (...) {
      runtime_.graph_destroy(again);
      throw;
    }
    runtime_.graph_destroy(again);
  }
  runtime_.graph_launch(repeated.graph, handle_);
}

}  // namespace holdfast::cuda
