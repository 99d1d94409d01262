// A collective is checked here, put into the group's queue with a digest of its arguments (`what`), and
// executed by the communication thread. bulk() returns the Event at once, and the reducer and the tensors'
// memory are used until it has passed; small() waits. Addresses enter the digest as offsets into the
// symmetric memory, so that it is equal on all members; mpi_group.cpp compares the digests of the members of
// a node.
//
// The rest is set-up, and collective: share() is an all-reduce in which every member fills its own words.
// share_memory() lets one member of a node create memory and the others open it. regroup() makes a new group:
// every member brings color, key and the next group key that it has not used, and the largest of these names
// the group. A member that fails at share_memory() still takes part in the second share(), and only then all
// throw: no member waits for one that has failed.
#include "src/comm/mpi_communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <tuple>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::comm {
namespace {

constexpr std::uint32_t largest_key = 1023;  // ten bits of a message's tag

std::uint64_t mix(std::uint64_t digest, std::uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
  return digest ^ digest >> 29;
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiEngine> engine, std::shared_ptr<MpiGroup> group,
                                 std::shared_ptr<std::uint32_t> next_key, bool is_world)
    : engine_(std::move(engine)),
      group_(std::move(group)),
      next_key_(std::move(next_key)),
      is_world_(is_world),
      exceptions_at_start_(std::uncaught_exceptions()),
      one_each_(as_size(group_->size()), 1) {
  engine_->add(group_);
}

MpiCommunicator::~MpiCommunicator() {
  if (std::uncaught_exceptions() == exceptions_at_start_) group_->drain();
  group_->abandon();
  engine_->remove(group_);
}

void MpiCommunicator::check_extents(std::span<const Extent> tensors, std::int64_t behind,
                                    bool whole_parts) const {
  const MpiWorld& world = group_->world();
  for (const Extent& tensor : tensors) {
    expects(tensor.part * size() >= tensor.elements && tensor.part >= 0, "parts that cover the tensor");
    if (size() == 1 || tensor.elements == 0) continue;
    expects(!world.base_of.empty(), "tensors of a collective lie in symmetric memory");
    const std::int64_t at = static_cast<const std::byte*>(tensor.data) - world.base_of[world.rank],
                       elements = whole_parts ? tensor.part * size() : tensor.elements,
                       bytes = (elements + behind) * bytes_of(tensor.type);
    expects(at >= 0 && at + bytes <= world.symmetric_bytes,
            "tensors of a collective lie in symmetric memory");
  }
}

Event MpiCommunicator::bulk(Operation& operation, Collective kind, std::int64_t wire_bytes,
                            const Event& after) {
  operation.kind = kind;
  operation.wire_bytes = wire_bytes;
  operation.after = after;
  std::uint64_t what =
      mix(static_cast<std::uint64_t>(kind) + 1, static_cast<std::uint64_t>(operation.array_stride));
  const MpiWorld& world = group_->world();
  for (const Extent& tensor : operation.tensors) {
    if (size() > 1 && tensor.elements > 0)
      what = mix(what, static_cast<std::uint64_t>(static_cast<const std::byte*>(tensor.data) -
                                                  world.base_of[world.rank]));
    what = mix(mix(what, static_cast<std::uint64_t>(tensor.elements)),
               static_cast<std::uint64_t>(tensor.part) << 8 | static_cast<std::uint64_t>(tensor.type));
  }
  for (int count : operation.arrays_of) what = mix(what, static_cast<std::uint64_t>(count));
  operation.what = what;
  return group_->enqueue();
}

Event MpiCommunicator::all_gather(std::span<const Extent> tensors, const Event& after) {
  check_extents(tensors, 0, true);
  const std::int64_t bytes = sent_by_gather(tensors, rank(), size());
  Operation& operation = group_->next(tensors, {});
  wire_.all_gather += bytes;
  return bulk(operation, Collective::all_gather, bytes, after);
}

Event MpiCommunicator::ordered_reduce_scatter(std::span<const Extent> gradients, OrderedReducer& reducer,
                                              const Event& after) {
  check_extents(gradients, 0, false);
  const std::int64_t bytes = sent_by_reduce_scatter(gradients, rank());
  Operation& operation = group_->next(gradients, one_each_);
  operation.reducer = &reducer;
  wire_.ordered_reduce_scatter += bytes;
  return bulk(operation, Collective::ordered_reduce_scatter, bytes, after);
}

Event MpiCommunicator::exchange_partial_sums(std::span<const Extent> tensors, std::int64_t array_stride,
                                             std::span<const int> sums_of, OrderedReducer& reducer,
                                             const Event& after) {
  check_extents(tensors, reach_of_partial_sums(sums_of, array_stride, size()), false);
  const std::int64_t bytes = sent_by_partial_sums(tensors, sums_of, rank());
  Operation& operation = group_->next(tensors, sums_of);
  operation.array_stride = array_stride;
  operation.reducer = &reducer;
  wire_.exchange_partial_sums += bytes;
  return bulk(operation, Collective::exchange_partial_sums, bytes, after);
}

void MpiCommunicator::small(Collective kind, std::span<std::byte> bytes, Scalar how, int root,
                            std::int64_t wire_bytes) {
  Operation& operation = group_->next({}, {});
  operation.kind = kind;
  operation.bytes = bytes;
  operation.how = how;
  operation.root = root;
  operation.wire_bytes = size() > 1 ? wire_bytes : 0;
  operation.what =
      mix(mix(mix(static_cast<std::uint64_t>(kind) + 1, bytes.size()), static_cast<std::uint64_t>(how)),
          static_cast<std::uint64_t>(root));
  const Event event = group_->enqueue();
  event.wait();
}

void MpiCommunicator::all_reduce(std::span<std::uint64_t> words, Scalar how) {
  if (words.empty()) return;
  const auto bytes = static_cast<std::int64_t>(words.size_bytes());
  if (size() > 1) wire_.all_reduce += bytes;
  small(Collective::all_reduce, std::as_writable_bytes(words), how, 0, bytes);
}

void MpiCommunicator::broadcast(std::span<std::byte> bytes, int root) {
  expects(root >= 0 && root < size(), "the root is a member");
  if (bytes.empty()) return;
  const auto sent = rank() == root && size() > 1 ? static_cast<std::int64_t>(bytes.size()) : 0;
  wire_.broadcast += sent;
  small(Collective::broadcast, bytes, Scalar::sum, root, sent);
}

void MpiCommunicator::barrier() { small(Collective::barrier, {}, Scalar::sum, 0, 0); }

std::vector<std::uint64_t> MpiCommunicator::share(std::span<const std::uint64_t> words) {
  std::vector<std::uint64_t> all(words.size() * as_size(size()), 0);
  std::copy(words.begin(), words.end(),
            all.begin() + static_cast<std::ptrdiff_t>(words.size()) * static_cast<std::ptrdiff_t>(rank()));
  small(Collective::all_reduce, std::as_writable_bytes(std::span(all)), Scalar::sum, 0, 0);
  return all;
}

/// The same memory on all members that share a node: `owner` (a member) creates it, the others find it. This
/// rank's pages are [first, first + count).
SharedMemory MpiCommunicator::share_memory(int owner, std::int64_t bytes, std::size_t first,
                                           std::size_t count) {
  SharedMemory memory;
  std::optional<Error> failure;
  SharedMemory::Handle handle;
  try {
    if (rank() == owner) {
      memory = SharedMemory::create(bytes);
      handle = memory.handle();
    }
  } catch (const Error& error) {
    failure = error;
  }
  const std::uint64_t words[] = {handle.process, handle.descriptor, handle.token, handle.bytes};
  const auto all = share(words);
  const std::uint64_t* theirs = &all[as_size(owner) * 4];
  try {
    if (rank() != owner && theirs[2] != 0) {
      auto opened = SharedMemory::open({theirs[0], theirs[1], theirs[2], theirs[3]});
      if (!opened)
        throw Error(Exit::runtime, "ranks of one node do not see each other's memory",
                    fmt::format("rank {} cannot open what its peer has created", rank()));
      memory = std::move(*opened);
    }
    if (!failure && theirs[2] != 0 && !memory.populate(first, count))
      throw Error(Exit::runtime, fmt::format("no {} of shared memory for rank {}", size_text(count), rank()),
                  "the kernel has no pages left", "Use fewer ranks per node, or a smaller model?");
  } catch (const Error& error) {
    failure = error;
  }
  const std::uint64_t failed[] = {failure.has_value()};
  const auto who = share(failed);
  if (failure) throw Error(*failure);
  if (const auto bad = std::find(who.begin(), who.end(), 1u); bad != who.end())
    throw Error(Exit::runtime,
                fmt::format("no {} of shared memory for the ranks of a node", size_text(bytes)),
                fmt::format("rank {} could not get it", group_->ranks()[bad - who.begin()]));
  memory.close();
  return memory;
}

std::span<std::byte> MpiCommunicator::symmetric_memory(std::int64_t bytes) {
  MpiWorld& world = group_->world();
  expects(is_world_ && world.base_of.empty(), "symmetric memory is asked for once, from the world");
  expects(bytes >= 0, "an amount of memory");
  const std::size_t stride = round_to_pages(as_size(bytes));
  const int node = world.node_of[world.rank];
  std::vector<int> local;  // ranks; members of a world are its ranks in order
  for (int rank : group_->ranks())
    if (world.node_of[rank] == node) local.push_back(rank);
  const auto own = as_size(std::find(local.begin(), local.end(), world.rank) - local.begin());
  SharedMemory memory =
      share_memory(local.front(), static_cast<std::int64_t>(local.size() * stride), own * stride, stride);
  world.base_of.assign(group_->ranks().size(), nullptr);
  for (std::size_t i = 0; i < local.size(); ++i) world.base_of[local[i]] = memory.bytes().data() + i * stride;
  world.symmetric = std::move(memory);
  world.symmetric_bytes = bytes;
  return {world.base_of[world.rank], as_size(bytes)};
}

bool MpiCommunicator::awaited(std::span<std::int64_t> by_rank) const {
  const MpiWorld& world = group_->world();
  expects(is_world_ && by_rank.size() == world.node_of.size(), "a place for every rank of the world");
  for (const int first : world.node_of)
    if (first != world.node_of[world.rank])
      by_rank[first] = world.awaited_ns[first].load(std::memory_order_relaxed);
  return true;
}

void MpiCommunicator::abort(std::string_view why) noexcept {
  try {
    log::error("this rank ends all ranks: {}", why);
    log::flush(Millis(500));
  } catch (...) {
  }
  engine_->abort(static_cast<int>(Exit::runtime));
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key, std::string name) {
  return regroup(color, key, std::move(name), nullptr);
}

std::unique_ptr<MpiCommunicator> MpiCommunicator::regroup(int color, int key, std::string name,
                                                          std::shared_ptr<MpiWorld> world) {
  const bool is_world = world != nullptr;
  if (!is_world) world = group_->shared_world();
  // Who is with me, in which order; and a key that nobody of us has used.
  const std::uint64_t facts[] = {static_cast<std::uint64_t>(static_cast<std::int64_t>(color)),
                                 static_cast<std::uint64_t>(static_cast<std::int64_t>(key)), *next_key_};
  const auto all = share(facts);
  std::vector<std::pair<std::int64_t, int>> order;  // key, member of this group
  std::uint64_t group_key = 0;
  for (int member = 0; member < size(); ++member) {
    const std::uint64_t* theirs = &all[as_size(member) * 3];
    group_key = std::max(group_key, theirs[2]);
    if (static_cast<std::int64_t>(theirs[0]) == color)
      order.emplace_back(static_cast<std::int64_t>(theirs[1]), member);
  }
  std::stable_sort(order.begin(), order.end());
  if (group_key > largest_key)
    throw Error(Exit::runtime, fmt::format("no more than {} groups of ranks in one run", largest_key));
  *next_key_ = static_cast<std::uint32_t>(group_key) + 1;
  std::vector<int> members, ranks;
  for (const auto& [_, member] : order) {
    members.push_back(member);
    ranks.push_back(group_->ranks()[member]);
  }
  // The first of a node brings the memory for the flags of the node's members.
  std::vector<int> local;  // places in the new group
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (world->node_of[ranks[i]] == world->node_of[world->rank]) local.push_back(static_cast<int>(i));
  SharedMemory memory = share_memory(
      members[local.front()], static_cast<std::int64_t>(local.size() * sizeof(MpiGroup::Mailbox)), 0, 0);
  std::vector<MpiGroup::Mailbox*> mailboxes(ranks.size(), nullptr);
  auto* first = reinterpret_cast<MpiGroup::Mailbox*>(memory.bytes().data());
  for (std::size_t i = 0; i < local.size(); ++i) mailboxes[local[i]] = first + i;
  auto group = std::make_shared<MpiGroup>(world, std::move(name), static_cast<std::uint32_t>(group_key),
                                          std::move(ranks), std::move(memory), std::move(mailboxes));
  return std::make_unique<MpiCommunicator>(engine_, std::move(group), next_key_, is_world);
}

}  // namespace holdfast::comm
