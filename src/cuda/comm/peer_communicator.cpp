#include "src/cuda/comm/peer_communicator.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace holdfast::cuda {

using comm::part_of;

PeerGroup::PeerGroup(std::shared_ptr<DeviceWorld> world, comm::Communicator& host, GroupFacts facts)
    : BulkGroup(world->runtime, world->watch, std::move(facts), world->options), world_(std::move(world)) {
  if (size() > 1) {
    comm::SharedMemory memory = share_memory(host, 0, PeerFlags::bytes_for(size()));
    flags_ = std::make_unique<PeerFlags>(runtime_, std::move(memory), size(), me());
  }
  watch();
}

PeerGroup::~PeerGroup() {
  if (quiet()) return;
  world_->leave_memory();
  if (flags_) flags_->leave();
}

Event PeerGroup::all_gather(std::span<const Extent> tensors, std::int64_t wire_bytes, std::uint64_t what,
                            const Event& after) {
  return operation(Collective::all_gather, wire_bytes, what, after, [&](std::uint64_t number) {
    if (flags_) flags_->announce(stream_.handle(), PeerFlags::Flag::ready, number);
    for (int distance = 1; distance < size(); ++distance) {
      const int peer = peer_at(distance);
      flags_->await(stream_.handle(), PeerFlags::Flag::ready, peer, number);
      for (const Extent& tensor : tensors) {
        const std::int64_t bytes = part_of(tensor, peer) * bytes_of(tensor.type);
        if (bytes == 0) continue;
        std::byte* to = static_cast<std::byte*>(tensor.data) + peer * tensor.part * bytes_of(tensor.type);
        runtime_.copy(stream_.handle(), to, world_->at(rank_of(peer), to), bytes);
      }
    }
    settle(number);
  });
}

Event PeerGroup::exchange(const Exchange& call, std::int64_t wire_bytes, std::uint64_t what,
                          const Event& after) {
  return operation(call.kind, wire_bytes, what, after, [&](std::uint64_t number) {
    if (flags_) flags_->announce(stream_.handle(), PeerFlags::Flag::ready, number);
    await_all(PeerFlags::Flag::ready, number);
    reduce(call);
    settle(number);
  });
}

void PeerGroup::reduce(const Exchange& call) {
  for (std::size_t t = 0; t < call.tensors.size(); ++t) {
    const Extent& tensor = call.tensors[t];
    const std::int64_t part = part_of(tensor, me()), size_of = bytes_of(tensor.type);
    if (part == 0) continue;
    const std::byte* mine = static_cast<const std::byte*>(tensor.data) + me() * tensor.part * size_of;
    sources_.clear();
    for (int member = 0; member < size(); ++member)
      for (int k = 0; k < call.arrays_of[member]; ++k) {
        const std::byte* there = mine + k * call.stride * size_of;
        sources_.push_back(member == me() ? there : world_->at(rank_of(member), there));
      }
    call.reducer->reduce(stream_, static_cast<int>(t), 0, part, sources_);
  }
}

void PeerGroup::await_all(PeerFlags::Flag flag, std::uint64_t number) {
  for (int distance = 1; distance < size(); ++distance)
    flags_->await(stream_.handle(), flag, peer_at(distance), number);
}

/// My memory may be used again when everybody has read it.
void PeerGroup::settle(std::uint64_t number) {
  if (flags_) flags_->announce(stream_.handle(), PeerFlags::Flag::done, number);
  await_all(PeerFlags::Flag::done, number);
}

// ---- what the watch asks

std::optional<Error> PeerGroup::trouble() {
  if (!flags_) return std::nullopt;
  const auto obituary = flags_->obituary();
  if (!obituary) return std::nullopt;
  return Error(Exit::runtime, fmt::format("rank {} has given up {}", rank_of(obituary->member), facts().name),
               obituary->why);
}

std::optional<Error> PeerGroup::disagreement(std::uint64_t number, std::uint64_t what) {
  for (int member = 0; member < size(); ++member) {
    if (member == me()) continue;
    const auto theirs = flags_->posted(member, number);
    if (theirs && *theirs != what)
      return Error(Exit::runtime, fmt::format("the members of {} do not do the same", facts().name),
                   fmt::format("rank {} has called another collective than rank {}, or with other sizes",
                               rank_of(member), rank_of(me())));
  }
  return std::nullopt;
}

std::string PeerGroup::missing(std::uint64_t number) const {
  std::vector<int> away, slow;
  for (int member = 0; member < size(); ++member) {
    if (member == me()) continue;
    if (!flags_->heard(PeerFlags::Flag::ready, member, number))
      away.push_back(rank_of(member));
    else if (!flags_->heard(PeerFlags::Flag::done, member, number))
      slow.push_back(rank_of(member));
  }
  const auto name = [](const std::vector<int>& ranks) {
    return fmt::format("rank{} {} ha{}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "),
                       ranks.size() > 1 ? "ve" : "s");
  };
  if (!away.empty()) return name(away) + " not arrived";
  if (!slow.empty()) return name(slow) + " arrived and not finished";
  return fmt::format("rank {}'s own GPU has not finished", rank_of(me()));
}

void PeerGroup::give_nothing_more(const Error& error) noexcept {
  if (flags_) flags_->give_up(error.what());
}

void PeerGroup::let_go() noexcept {
  if (flags_) flags_->release(queued());
}

void PeerGroup::announce(std::uint64_t number, std::uint64_t what) {
  if (flags_) flags_->post(number, what);
}

}  // namespace holdfast::cuda
