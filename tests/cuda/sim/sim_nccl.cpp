#include "tests/cuda/sim/sim_nccl.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast::cuda::sim {
namespace {

constexpr std::uint64_t ring_bytes = 32 << 10;

/// Bytes from one member to another.
struct Ring {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  std::byte data[ring_bytes];
};

struct Shared {
  std::atomic<int> joined;
  Ring rings[SimNccl::max_members][SimNccl::max_members];  ///< from, to
};

/// Before every message: both sides must mean the same.
struct Frame {
  std::uint64_t kind = 0, bytes = 0;
};

std::uint64_t put(Ring& ring, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t at = ring.written.load(std::memory_order_relaxed);
  const std::uint64_t room = ring_bytes - (at - ring.read.load(std::memory_order_acquire));
  bytes = std::min(bytes, room);
  for (std::uint64_t i = 0; i < bytes; ++i) ring.data[(at + i) % ring_bytes] = from[i];
  ring.written.store(at + bytes, std::memory_order_release);
  return bytes;
}

std::uint64_t get(Ring& ring, std::byte* to, std::uint64_t bytes) {
  const std::uint64_t at = ring.read.load(std::memory_order_relaxed);
  bytes = std::min(bytes, ring.written.load(std::memory_order_acquire) - at);
  for (std::uint64_t i = 0; i < bytes; ++i) to[i] = ring.data[(at + i) % ring_bytes];
  ring.read.store(at + bytes, std::memory_order_release);
  return bytes;
}

}  // namespace

struct SimNccl::Member {
  comm::SharedMemory memory;
  std::string name;
  int size = 0, rank = 0;
  StreamHandle stream{};  // the one that it was first used on
  bool used = false;
  std::atomic<bool> gone{false}, aborted{false};  // the watch of a group ends it from a thread of its own
  std::atomic<int> under_way{0};
  std::mutex mutex;
  std::string trouble;

  Shared& shared() const { return *reinterpret_cast<Shared*>(memory.bytes().data()); }
  void say(const std::string& text) {
    const std::lock_guard lock(mutex);
    trouble = text;
  }
};

struct SimNccl::Transfer {
  bool sends = false;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  int peer = 0;
  Frame frame;
  std::uint64_t framed = 0, moved = 0;  // bytes so far

  bool done() const { return framed == sizeof frame && moved == bytes; }
};

SimNccl::SimNccl(SimRuntime& runtime, int version) : runtime_(runtime), version_(version) {}

SimNccl::~SimNccl() = default;

NcclId SimNccl::unique_id() {
  offered_.push_back(comm::SharedMemory::create(sizeof(Shared)));
  const auto handle = offered_.back().handle();
  NcclId id{};
  static_assert(sizeof handle <= sizeof id);
  std::memcpy(id.data(), &handle, sizeof handle);
  return id;
}

NcclHandle SimNccl::init(const NcclId& id, int size, int rank, const std::string& name,
                         std::chrono::milliseconds limit) {
  expects(size <= max_members && rank >= 0 && rank < size, "a member of a group that is not too large");
  comm::SharedMemory::Handle handle;
  std::memcpy(&handle, id.data(), sizeof handle);
  auto memory = comm::SharedMemory::open(handle);
  if (!memory) throw Error(Exit::runtime, "simulated NCCL has failed", "nobody knows this unique id");
  auto made = std::make_unique<Member>();
  made->memory = std::move(*memory);
  made->name = name;
  made->size = size;
  made->rank = rank;
  auto& joined = made->shared().joined;
  ++joined;
  for (const Deadline deadline = Deadline::in(limit); joined.load() < size;
       std::this_thread::sleep_for(std::chrono::microseconds(100)))
    if (deadline.passed())
      throw Error(Exit::runtime, "simulated NCCL has failed", "not all members have come");
  const std::lock_guard lock(mutex_);
  members_.push_back(std::move(made));
  return static_cast<NcclHandle>(members_.size());
}

SimNccl::Member& SimNccl::member(NcclHandle comm) {
  const std::lock_guard lock(mutex_);
  const auto number = as_size(comm);
  expects(number >= 1 && number <= members_.size(), "a communicator");
  return *members_[number - 1];
}

bool SimNccl::register_memory(NcclHandle comm, void*, std::int64_t) {
  expects(!member(comm).gone, "a communicator that is still there");
  ++registrations_;
  return true;
}

void SimNccl::begin() {
  expects(!grouping_, "one operation at a time");
  grouping_ = true;
  group_of_ = nullptr;
  group_.clear();
}

void SimNccl::add(NcclHandle comm, StreamHandle stream, bool sends, std::uint64_t kind, const void* data,
                  std::int64_t bytes, int peer) {
  Member& member = this->member(comm);
  expects(grouping_ && bytes > 0 && peer >= 0 && peer < member.size && peer != member.rank,
          "a transfer between two members inside of begin() and end()");
  expects(group_of_ == nullptr || (group_of_ == &member && group_stream_ == stream),
          "one communicator, one stream");
  group_of_ = &member;
  group_stream_ = stream;
  Transfer transfer;
  transfer.sends = sends;
  transfer.data = static_cast<std::byte*>(const_cast<void*>(data));
  transfer.bytes = static_cast<std::uint64_t>(bytes);
  transfer.peer = peer;
  transfer.frame = {kind, static_cast<std::uint64_t>(bytes)};
  group_.push_back(transfer);
}

void SimNccl::all_gather(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes) {
  const Member& member = this->member(comm);
  auto* parts = static_cast<std::byte*>(to);
  ++all_gathers_;
  for (int peer = 0; peer < member.size; ++peer) {
    if (peer == member.rank) continue;
    add(comm, stream, true, 1, parts + member.rank * bytes, bytes, peer);
    add(comm, stream, false, 1, parts + peer * bytes, bytes, peer);
  }
}

void SimNccl::send(NcclHandle comm, StreamHandle stream, const void* from, std::int64_t bytes, int peer) {
  ++sends_;
  add(comm, stream, true, 2, from, bytes, peer);
}

void SimNccl::receive(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes, int peer) {
  add(comm, stream, false, 2, to, bytes, peer);
}

void SimNccl::end(NcclHandle comm, std::chrono::milliseconds) {
  expects(grouping_, "begin() comes first");
  grouping_ = false;
  if (group_.empty()) return;
  Member& member = this->member(comm);
  expects(group_of_ == &member && !member.gone, "the communicator of the operation");
  expects(!member.used || member.stream == group_stream_, "a communicator is used on one stream");
  member.used = true;
  member.stream = group_stream_;
  std::vector<Access> accesses;
  for (const Transfer& transfer : group_)
    accesses.push_back({transfer.data, static_cast<std::int64_t>(transfer.bytes), !transfer.sends});
  ++launches_;
  ++member.under_way;
  runtime_.enqueue_polling(group_stream_, "NCCL", accesses,
                           [&member, transfers = std::make_shared<std::vector<Transfer>>(group_)] {
                             const bool over = member.aborted.load() || move(member, *transfers);
                             if (over) --member.under_way;
                             return over;
                           });
}

/// A little of everything. What goes from one member to another goes in order.
bool SimNccl::move(Member& member, std::vector<Transfer>& transfers) {
  bool all = true;
  bool held[2][max_members] = {};
  for (Transfer& transfer : transfers) {
    if (transfer.done()) continue;
    bool& behind = held[transfer.sends][transfer.peer];
    all = false;
    if (behind) continue;
    behind = true;
    auto& rings = member.shared().rings;
    if (transfer.sends) {
      Ring& ring = rings[member.rank][transfer.peer];
      const auto* frame = reinterpret_cast<const std::byte*>(&transfer.frame);
      transfer.framed += put(ring, frame + transfer.framed, sizeof transfer.frame - transfer.framed);
      if (transfer.framed == sizeof transfer.frame)
        transfer.moved += put(ring, transfer.data + transfer.moved, transfer.bytes - transfer.moved);
    } else {
      Ring& ring = rings[transfer.peer][member.rank];
      // A frame is taken at once.
      if (transfer.framed == 0 &&
          ring.written.load(std::memory_order_acquire) - ring.read.load(std::memory_order_relaxed) >=
              sizeof(Frame)) {
        Frame frame;
        transfer.framed = get(ring, reinterpret_cast<std::byte*>(&frame), sizeof frame);
        if (frame.kind != transfer.frame.kind || frame.bytes != transfer.frame.bytes) {
          member.say("the members do not do the same");
          return false;
        }
      }
      if (transfer.framed == sizeof(Frame))
        transfer.moved += get(ring, transfer.data + transfer.moved, transfer.bytes - transfer.moved);
    }
    behind = !transfer.done();
  }
  return all;
}

std::string SimNccl::trouble(NcclHandle comm) noexcept {
  Member& member = this->member(comm);
  const std::lock_guard lock(member.mutex);
  return member.gone ? "asked for a communicator that is gone" : member.trouble;
}

void SimNccl::abort(NcclHandle comm, std::chrono::milliseconds) noexcept {
  Member& member = this->member(comm);
  expects(!member.gone, "a communicator that is still there");
  member.gone = true;
  member.aborted.store(true);
  ++aborts_;
}

void SimNccl::destroy(NcclHandle comm, std::chrono::milliseconds) noexcept {
  Member& member = this->member(comm);
  expects(!member.gone && member.under_way.load() == 0, "nothing is under way");
  member.gone = true;
}

void SimNccl::fail(const std::string& name, const std::string& text) {
  const std::lock_guard lock(mutex_);
  for (const auto& member : members_)
    if (member->name == name) member->say(text);
}

}  // namespace holdfast::cuda::sim
