// Setting up a group over NCCL and trying it out; its gathers; and reductions, round by round.
#include "src/cuda/comm/nccl_communicator.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::cuda {

using comm::part_of;

namespace {

constexpr std::int64_t alignment = 256;  // of an array's piece in the inbox
constexpr auto ending_time = std::chrono::seconds(5);
constexpr auto abort_patience = std::chrono::seconds(1);

std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void warn_without_infiniband() {
  static const bool told = [] {
    std::error_code ignored;
    const std::filesystem::path devices = "/sys/class/infiniband";
    if (!std::filesystem::exists(devices, ignored) || std::filesystem::is_empty(devices, ignored))
      log::warn("no InfiniBand or RoCE device here ({} is empty): NCCL goes over TCP sockets, which is slow",
                devices.string());
    return true;
  }();
  static_cast<void>(told);
}

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclGroup::NcclGroup(std::shared_ptr<DeviceWorld> world, comm::Communicator& host, GroupFacts facts)
    : BulkGroup(world->runtime, world->watch, std::move(facts), world->options),
      world_(std::move(world)),
      nccl_(*world_->nccl),
      reductions_(runtime_, this->facts().name + " (reductions)", stream_options(world_->options)),
      half_(world_->options.inbox_bytes / 2 / alignment * alignment) {
  reductions_.on_wait([this] { world_->watch.check(); });
  if (!world_->options.share_gpu && world_->share_a_gpu(this->facts().ranks))
    throw Error(Exit::usage,
                fmt::format("ranks of {} share a GPU and are on several nodes", this->facts().name),
                "NCCL wants a GPU for every rank",
                "Use as many ranks per node as it has GPUs, or let them share with HOLDFAST_SHARE_GPU=1 (for "
                "tests)?");
  compare_versions(host);
  if (me() == 0) warn_without_infiniband();
  try {
    set_up(host);
  } catch (...) {
    finish(true);
    release();
    throw;
  }
}

NcclGroup::~NcclGroup() { release(); }

void NcclGroup::set_up(comm::Communicator& host) {
  std::optional<Error> failure;
  try {
    inbox_ = static_cast<std::byte*>(runtime_.device_alloc(2 * half_));
  } catch (const Error& error) {
    failure.emplace(Exit::runtime, "no room on the GPU for what comes from other nodes",
                    fmt::format("{} for {}; {}", size_text(2 * half_), facts().name, error.problem()),
                    "Use a smaller micro-batch, checkpoint more activations, or shard over more ranks; is "
                    "another process "
                    "on this GPU?");
  }
  agree(host, failure, "no memory for what comes from other nodes");
  connect(host);
  watch();
  try_out();
}

void NcclGroup::release() noexcept {
  if (connected_ && !stopped_.exchange(true)) nccl_.destroy(comm_, ending_time);
  if (!quiet()) world_->leave_memory();
  if (inbox_ != nullptr && quiet()) runtime_.device_free(inbox_);
  inbox_ = nullptr;
}

void NcclGroup::compare_versions(comm::Communicator& host) {
  std::optional<Error> failure;
  std::uint64_t mine[] = {0};
  try {
    mine[0] = static_cast<std::uint64_t>(nccl_.version());
  } catch (const Error& error) {
    failure = error;
  }
  agree(host, failure, "NCCL cannot be used");
  const auto all = share(host, mine);
  for (std::size_t member = 1; member < all.size(); ++member)
    if (all[member] != all[0])
      throw Error(Exit::usage, fmt::format("the ranks of {} have different versions of NCCL", facts().name),
                  fmt::format("rank {} has {}, rank {} has {}", rank_of(0),
                              nccl_version_text(static_cast<int>(all[0])), rank_of(static_cast<int>(member)),
                              nccl_version_text(static_cast<int>(all[member]))),
                  "Install the same libnccl.so.2 on all nodes, or take it along with the bundle");
}

void NcclGroup::connect(comm::Communicator& host) {
  constexpr std::size_t words = sizeof(NcclId) / sizeof(std::uint64_t);
  NcclId id{};
  std::optional<Error> failure;
  try {
    if (me() == 0) id = nccl_.unique_id();
  } catch (const Error& error) {
    failure = error;
  }
  agree(host, failure, "NCCL does not start");
  std::uint64_t mine[words];
  std::memcpy(mine, id.data(), sizeof mine);
  const auto all = share(host, mine);
  std::memcpy(id.data(), all.data(), sizeof id);  // member 0's
  try {
    comm_ = nccl_.init(id, size(), me(), facts().name, limit_);
    connected_ = true;
  } catch (const Error& error) {
    failure = error;
  }
  agree(host, failure, fmt::format("NCCL does not connect the ranks of {}", facts().name));
}

template <class Calls>
void NcclGroup::launch(const Calls& calls) {
  const std::lock_guard lock(calling_);
  if (stopped_.load()) throw_if_failed();
  if (!registered_ && world_->allocated()) {
    registered_ = true;
    const auto memory = world_->memory();
    nccl_.register_memory(comm_, memory.data(), static_cast<std::int64_t>(memory.size()));
  }
  nccl_.begin();
  calls();
  nccl_.end(comm_, limit_);
}

/// One byte to and from everybody, by both ways that are used later: NCCL connects members when they first
/// talk.
void NcclGroup::try_out() {
  const Event done = operation(Collective::all_gather, 0, 0, {}, [&](std::uint64_t) {
    stream_.zero(inbox_, 2 * half_);
    launch([&] { nccl_.all_gather(comm_, stream_.handle(), inbox_, 1); });
    launch([&] {
      for (int distance = 1; distance < size(); ++distance) {
        const int to = (me() + distance) % size(), from = (me() + size() - distance) % size();
        nccl_.send(comm_, stream_.handle(), inbox_, 1, to);
        nccl_.receive(comm_, stream_.handle(), inbox_ + half_ + from, 1, from);
      }
    });
  });
  done.wait();
}

Event NcclGroup::all_gather(std::span<const Extent> tensors, std::int64_t wire_bytes, std::uint64_t what,
                            const Event& after) {
  return operation(Collective::all_gather, wire_bytes, what, after, [&](std::uint64_t) {
    launch([&] {
      for (const Extent& tensor : tensors)  // NCCL gathers equal parts: whole ones
        if (tensor.elements > 0)
          nccl_.all_gather(comm_, stream_.handle(), tensor.data, tensor.part * bytes_of(tensor.type));
    });
  });
}

Event NcclGroup::exchange(const Exchange& call, std::int64_t wire_bytes, std::uint64_t what,
                          const Event& after) {
  return operation(call.kind, wire_bytes, what, after, [&](std::uint64_t) {
    int arrays = 0;
    for (int count : call.arrays_of) arrays += count;
    Event emptied[2];
    Piece at;
    for (int half = 0;; half ^= 1) {
      plan_round(call, arrays, at);
      if (round_.empty()) break;
      std::byte* inbox = inbox_ + half * half_;
      stream_.wait(emptied[half]);
      move_round(call, inbox);
      reductions_.wait(stream_.record());
      reduce_round(call, inbox);
      emptied[half] = reductions_.record();
    }
    stream_.wait(reductions_.record());
  });
}

void NcclGroup::plan_round(const Exchange& call, int arrays, Piece& at) {
  round_.clear();
  std::int64_t room = half_;
  for (; at.tensor < call.tensors.size(); ++at.tensor, at.first = 0) {
    const Extent& tensor = call.tensors[at.tensor];
    const std::int64_t size_of = bytes_of(tensor.type), longest = std::min(tensor.part, tensor.elements);
    while (at.first < longest && arrays > 0) {
      const std::int64_t fits = room / arrays / alignment * alignment / size_of;
      const std::int64_t count = std::min(fits, longest - at.first);
      if (count <= 0) {
        expects(!round_.empty(), "an inbox that holds a piece of every array");
        return;
      }
      round_.push_back({at.tensor, at.first, count});
      room -= arrays * aligned(count * size_of);
      at.first += count;
    }
  }
}

void NcclGroup::move_round(const Exchange& call, std::byte* inbox) {
  const auto count_of = [&](const Piece& piece, int member) {
    return std::clamp<std::int64_t>(part_of(call.tensors[piece.tensor], member) - piece.first, 0,
                                    piece.count);
  };
  launch([&] {
    for (const Piece& piece : round_) {
      const Extent& tensor = call.tensors[piece.tensor];
      const std::int64_t size_of = bytes_of(tensor.type), array_bytes = aligned(piece.count * size_of);
      const std::int64_t mine = count_of(piece, me());
      int before = 0;  // arrays of members before `peer`
      for (int peer = 0; peer < size(); ++peer) {
        const int arrays = call.arrays_of[peer];
        if (peer != me() && mine > 0)
          for (int k = 0; k < arrays; ++k)
            nccl_.receive(comm_, stream_.handle(), inbox + (before + k) * array_bytes, mine * size_of, peer);
        before += arrays;
        const std::int64_t theirs = count_of(piece, peer);
        if (peer == me() || theirs == 0) continue;
        const std::byte* from =
            static_cast<const std::byte*>(tensor.data) + (peer * tensor.part + piece.first) * size_of;
        for (int k = 0; k < call.arrays_of[me()]; ++k)
          nccl_.send(comm_, stream_.handle(), from + k * call.stride * size_of, theirs * size_of, peer);
      }
      inbox += before * array_bytes;
    }
  });
}

void NcclGroup::reduce_round(const Exchange& call, const std::byte* inbox) {
  for (const Piece& piece : round_) {
    const Extent& tensor = call.tensors[piece.tensor];
    const std::int64_t size_of = bytes_of(tensor.type), array_bytes = aligned(piece.count * size_of);
    const std::int64_t mine = std::clamp<std::int64_t>(part_of(tensor, me()) - piece.first, 0, piece.count);
    int arrays = 0;
    for (int count : call.arrays_of) arrays += count;
    if (mine > 0) {
      sources_.clear();
      int before = 0;
      for (int member = 0; member < size(); ++member) {
        for (int k = 0; k < call.arrays_of[member]; ++k)
          sources_.push_back(member == me()
                                 ? static_cast<const std::byte*>(tensor.data) +
                                       (me() * tensor.part + piece.first + k * call.stride) * size_of
                                 : inbox + (before + k) * array_bytes);
        before += call.arrays_of[member];
      }
      call.reducer->reduce(reductions_, static_cast<int>(piece.tensor), piece.first, mine, sources_);
    }
    inbox += arrays * array_bytes;
  }
}

// ---- what the watch asks

std::optional<Error> NcclGroup::trouble() {
  const std::string text = nccl_.trouble(comm_);
  if (text.empty()) return std::nullopt;
  return Error(Exit::runtime, fmt::format("NCCL has failed in {}", facts().name), text,
               "Has a peer died, or the network?");
}

std::string NcclGroup::missing(std::uint64_t) const {
  return fmt::format("NCCL does not say which of ranks {} it waits for; the flight records of the nodes do",
                     fmt::join(facts().ranks, ", "));
}

void NcclGroup::give_nothing_more(const Error&) noexcept {
  stopped_.store(true);
  // Not while the caller is inside NCCL, unless it hangs there: then abort() is what brings it back.
  std::unique_lock lock(calling_, std::defer_lock);
  const bool alone = lock.try_lock_for(abort_patience);
  if (!alone) log::warn("a call of NCCL over {} does not return; it is aborted", facts().name);
  nccl_.abort(comm_, ending_time);
}

}  // namespace holdfast::cuda
