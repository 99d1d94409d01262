// Two threads meet at the queue, a ring. The caller's thread takes a place (next), fills it and hands it over
// (enqueue); `passed_` and `broken_` tell it the end. The communication thread calls poll(), which takes the
// operation at the head a little further:
//
// - waiting: for its turn and for `after`. Then begin() starts the deadline and tells the node's members.
// - moving: the steps of mpi_gather.cpp, mpi_exchange.cpp or mpi_small.cpp.
// - leaving, for bulk operations: settle() ends it once all members of the node have read what is ours.
//
// A time-out, arguments that differ between members of a node, and a message of another length end in fail().
// The group is broken from then on: next() and wait() throw that first Error. The deadline cannot fire while
// MPI itself holds the communication thread; wait() watches that by the thread's `beat`.
#include "src/comm/mpi_group.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace holdfast::comm {
namespace {

bool small(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::broadcast || kind == Collective::barrier;
}

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<MpiWorld> world, std::string name, std::uint32_t key,
                   std::vector<int> ranks, SharedMemory memory, std::vector<Mailbox*> mailboxes)
    : world_(std::move(world)),
      name_(std::move(name)),
      key_(key),
      ranks_(std::move(ranks)),
      memory_(std::move(memory)),
      mailboxes_(std::move(mailboxes)),
      queue_(queue_places),
      arrays_of_(ranks_.size() * queue_places),
      ordinals_(queue_places),
      heard_(ranks_.size()),
      awaited_(ranks_.size()),
      messages_(world_->comm) {
  const auto node = [&](int member) { return world_->node_of[ranks_[member]]; };
  me_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), world_->rank) - ranks_.begin());
  expects(me_ < size(), "a member of its own group");
  std::vector<int> nodes;
  int here = 0;
  for (int member = 0; member < size(); ++member) {
    (node(member) == node(me_) ? local_ : remote_).push_back(member);
    while (node(awaited_[member].first) != node(member)) ++awaited_[member].first;
    if (std::find(nodes.begin(), nodes.end(), node(member)) != nodes.end()) continue;
    if (node(member) == node(me_)) {
      leader_ = member;
      here = static_cast<int>(nodes.size());
    }
    nodes.push_back(node(member));
    leaders_.push_back(member);
  }
  exchanges_ = small_exchanges(static_cast<int>(nodes.size()), here);
  while (rotation_ < remote_.size() && remote_[rotation_] < me_) ++rotation_;
  copied_.resize(local_.size());
}

MpiGroup::~MpiGroup() = default;

void MpiGroup::attach() {
  const std::uint64_t key = std::uint64_t{key_} << 32 | static_cast<std::uint32_t>(ranks_[0]);
  place_ = world_->recorder->join(key, name_, size(), me_);
}

void MpiGroup::detach() { world_->recorder->leave(place_); }

// ---- the caller's side

void MpiGroup::throw_if_broken() const {
  if (broken()) throw Error(*failure_);
}

Operation& MpiGroup::next(std::span<const Extent> tensors, std::span<const int> arrays_of) {
  throw_if_broken();
  const std::uint64_t number = queued_.load(std::memory_order_relaxed) + 1;
  if (number > queue_places) wait(number - queue_places);
  const std::size_t place = number % queue_places;
  Operation& operation = queue_[place];
  operation = {};
  operation.number = number;
  if (tensors.size() > list_width_) {
    // What is under way keeps the lists that it has.
    list_width_ = std::max<std::size_t>({tensors.size(), 2 * list_width_, 16});
    lists_.push_back(std::make_unique<Extent[]>(list_width_ * queue_places));
  }
  if (!tensors.empty()) {
    Extent* list = lists_.back().get() + place * list_width_;
    std::copy(tensors.begin(), tensors.end(), list);
    operation.tensors = {list, tensors.size()};
  }
  int* counts = arrays_of_.data() + place * ranks_.size();
  std::copy(arrays_of.begin(), arrays_of.end(), counts);
  operation.arrays_of = {counts, arrays_of.size()};
  return operation;
}

Event MpiGroup::enqueue() {
  const std::uint64_t number = queued_.load(std::memory_order_relaxed) + 1;
  queue_[number % queue_places].enqueued_ns = steady_ns();
  queued_.store(number, std::memory_order_release);
  world_->bells[world_->rank]->ring();
  return {this, number};
}

void MpiGroup::wait(std::uint64_t ticket) {
  if (passed(ticket)) return;
  std::unique_lock lock(mutex_);
  ++sleepers_;
  const auto over = [&] { return passed_.load() >= ticket || broken_.load(); };
  bool held = false;
  while (!held && !woken_.wait_for(lock, std::chrono::milliseconds(500), over)) held = thread_is_held();
  --sleepers_;
  if (passed(ticket)) return;
  throw_if_broken();
  throw Error(Exit::runtime,
              fmt::format("the communication thread of rank {} does not come back", world_->rank),
              "MPI has held it for longer than the time limit", "Is the network down?");
}

/// Deadlines are watched by the communication thread; this one is for itself.
bool MpiGroup::thread_is_held() const {
  constexpr auto grace = std::chrono::seconds(2);  // its cores may be busy with others
  return std::chrono::nanoseconds(steady_ns() - world_->beat->load(std::memory_order_relaxed)) >
         world_->limit + grace;
}

void MpiGroup::drain() noexcept {
  try {
    wait(queued_.load(std::memory_order_relaxed));
  } catch (const std::exception&) {
    // Whoever waited for one of them has heard of it.
  }
}

void MpiGroup::abandon() noexcept {
  // The communication thread never stays long in a poll, unless MPI holds it: then it is not with the
  // caller's memory, and the job is about to be aborted.
  bool mine = false;
  for (int tries = 0; tries < 1000 && !(mine = polling_.try_lock()); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!broken()) {
    failure_.emplace(Exit::runtime, name_ + " was given up");
    broken_.store(true);
  }
  if (mine) polling_.unlock();
}

// ---- the communication thread's side

bool MpiGroup::busy() const {
  return !broken() && passed_.load(std::memory_order_relaxed) != queued_.load(std::memory_order_acquire);
}

bool MpiGroup::must_be_polled() const {
  if (!busy()) return false;
  if (phase_ != Phase::waiting) return !messages_.none();
  const Operation& head = queue_[(passed_.load(std::memory_order_relaxed) + 1) % queue_places];
  return dynamic_cast<const MpiGroup*>(head.after.line) == nullptr;
}

void MpiGroup::note_new_ones() {
  for (const std::uint64_t queued = queued_.load(std::memory_order_acquire); noted_ < queued;) {
    const Operation& operation = queue_[++noted_ % queue_places];
    const std::uint64_t key = std::uint64_t{key_} << 32 | static_cast<std::uint32_t>(ranks_[0]);
    ordinals_[noted_ % queue_places] = world_->recorder->queued(
        place_, key, name_, operation.kind, operation.number, operation.wire_bytes, operation.enqueued_ns);
  }
}

bool MpiGroup::poll() {
  const std::lock_guard lock(polling_);
  if (!busy()) return false;
  note_new_ones();
  Operation& operation = queue_[(passed_.load(std::memory_order_relaxed) + 1) % queue_places];
  try {
    bool moved = false;
    if (phase_ == Phase::waiting) {
      if (!operation.after.passed()) {
        if (const auto* line = dynamic_cast<const MpiGroup*>(operation.after.line); line && line->broken())
          fail(*line->failure_);
        return false;
      }
      begin(operation);
      moved = true;
    }
    moved |= take_messages();
    switch (operation.kind) {
      case Collective::all_gather:
        moved |= step_gather(operation);
        break;
      case Collective::ordered_reduce_scatter:
      case Collective::exchange_partial_sums:
        moved |= step_exchange(operation);
        break;
      default:
        moved |= step_small(operation);
    }
    if (phase_ == Phase::waiting)
      finish(operation);
    else if (!moved && Clock::now() >= deadline_)
      time_out(operation);
    return moved;
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(Exit::runtime,
               fmt::format("{} #{} over {} failed", name_of(operation.kind), operation.number, name_),
               error.what()));
  }
  return true;
}

void MpiGroup::begin(Operation& operation) {
  world_->recorder->started(place_, ordinals_[operation.number % queue_places]);
  deadline_ = Clock::now() + world_->limit;
  phase_ = Phase::moving;
  received_ = sent_ = {};
  if (small(operation.kind)) {
    box_at_ = 0;
    begin_box(operation);
    return;
  }
  ++tick_;
  const auto me = as_size(me_);
  mailboxes_[me]->what.store(operation.what, std::memory_order_relaxed);
  publish(&Mailbox::ready);
  if (operation.kind == Collective::all_gather)
    begin_gather(operation);
  else
    begin_exchange(operation);
}

/// Nothing of ours is missing: says so, and ends the collective when all of this node have said it.
void MpiGroup::settle() {
  if (phase_ == Phase::moving) {
    publish(&Mailbox::done);
    phase_ = Phase::leaving;
  }
  for (int member : local_)
    if (mailboxes_[member]->done.load(std::memory_order_acquire) < tick_) return;
  phase_ = Phase::waiting;
}

void MpiGroup::finish(Operation& operation) {
  world_->recorder->finished(place_, ordinals_[operation.number % queue_places], false);
  passed_.store(operation.number);
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }  // whoever looked before the store is asleep by now
  woken_.notify_all();
}

void MpiGroup::time_out(const Operation& operation) {
  fail(Error(Exit::runtime,
             fmt::format("{} #{} over {} did not finish within {} s", name_of(operation.kind),
                         operation.number, name_, static_cast<double>(world_->limit.count()) / 1000),
             missing(operation), "Has a peer died or fallen behind?"));
  if (world_->explain)
    log::warn("{}; the flight record says: {}", failure_->what(), to_text(world_->recorder->read()));
}

void MpiGroup::fail(const Error& error) noexcept {
  failure_.emplace(error);
  world_->recorder->finished(place_, ordinals_[(passed_.load(std::memory_order_relaxed) + 1) % queue_places],
                             true);
  messages_.cancel();
  {
    const std::lock_guard lock(mutex_);
    broken_.store(true);
  }
  woken_.notify_all();
}

std::string MpiGroup::missing(const Operation& operation) const {
  std::vector<int> away, slow, nodes;
  for (int member : local_) {
    const Mailbox& mailbox = *mailboxes_[member];
    const int rank = ranks_[member];
    if (mailbox.ready.load(std::memory_order_acquire) < tick_)
      away.push_back(rank);
    else if (member != me_ && !small(operation.kind) && mailbox.done.load(std::memory_order_acquire) < tick_)
      slow.push_back(rank);
  }
  messages_.each_peer([&](int rank) {
    const auto member = std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
    if (small(operation.kind))
      nodes.push_back(rank);  // which speaks for others
    else
      (heard_[member] == tick_ ? slow : away).push_back(rank);
  });
  for (auto* list : {&away, &slow, &nodes}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  const auto name = [](const std::vector<int>& ranks) {
    return fmt::format("rank{} {} ha{}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "),
                       ranks.size() > 1 ? "ve" : "s");
  };
  if (!away.empty()) return name(away) + " not arrived";
  if (!slow.empty()) return name(slow) + " arrived and not finished";
  if (!nodes.empty())
    return fmt::format("nothing has come from the node of rank {}, which may wait for another",
                       fmt::join(nodes, ", "));
  return fmt::format("rank {} has arrived and waits for other nodes", ranks_[leader_]);
}

void MpiGroup::publish(std::atomic<std::uint64_t> Mailbox::*flag) {
  (mailboxes_[me_]->*flag).store(tick_, std::memory_order_release);
  for (int member : local_)
    if (member != me_) world_->bells[ranks_[member]]->ring();
}

bool MpiGroup::arrived(int member) const {
  const Mailbox& mailbox = *mailboxes_[member];
  if (mailbox.ready.load(std::memory_order_acquire) < tick_) return false;
  if (mailbox.what.load(std::memory_order_relaxed) != mailboxes_[me_]->what.load(std::memory_order_relaxed))
    throw Error(Exit::runtime, fmt::format("the members of {} do not do the same", name_),
                fmt::format("rank {} has called another collective than rank {}, or with other sizes",
                            ranks_[member], world_->rank));
  return true;
}

bool MpiGroup::all_arrived() const {
  return std::all_of(local_.begin(), local_.end(), [&](int member) { return arrived(member); });
}

std::byte* MpiGroup::peer_address(int member, const void* mine) const {
  const auto& base = world_->base_of;
  return base[ranks_[member]] + (static_cast<const std::byte*>(mine) - base[world_->rank]);
}

/// Groups, numbers and kinds that could meet differ: a message of one is never taken for another's. MPI
/// orders messages with equal tags.
int MpiGroup::tag(const Operation& operation) const {
  return static_cast<int>(key_ << 13 | (operation.number & 1023) << 3 |
                          static_cast<std::uint32_t>(operation.kind));
}

/// A message of that member is awaited from now on.
void MpiGroup::await(int member) {
  Awaited& node = awaited_[awaited_[member].first];
  if (node.messages++ == 0) node.since_ns = steady_ns();
}

/// It has come. Messages of small collectives were not awaited so.
void MpiGroup::came(int member) {
  Awaited& node = awaited_[awaited_[member].first];
  if (node.messages == 0 || --node.messages > 0) return;
  world_->awaited_ns[world_->node_of[ranks_[member]]].fetch_add(steady_ns() - node.since_ns,
                                                                std::memory_order_relaxed);
}

bool MpiGroup::take_messages() {
  return messages_.poll([&](std::uint32_t note, bool is_receive) {
    if (!is_receive) return;
    heard_[note >> 1] = tick_;
    came(static_cast<int>(note >> 1));
    --pending_[note & 1];  // only an exchange looks at it
  });
}

}  // namespace holdfast::comm
