#pragma once
// One communicator as the communication thread sees it: who its members are, how they are reached, the queue
// of its collectives, and the one at the head as a state machine that never waits (poll()).
//
// Inside a node nothing is sent: a member announces "my memory may be read" and "I have read" with a flag
// each, in memory that the group's members of the node share, and the others read its part of the symmetric
// memory directly. Flags are counters (ticks) that only grow, one tick per collective or per box of a small
// one; all members count alike. To and from other nodes everything travels in pieces.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/comm/doorbell.hpp"
#include "src/comm/mpi_messages.hpp"
#include "src/comm/operation.hpp"
#include "src/comm/shared_memory.hpp"
#include "src/comm/small_exchanges.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::comm {

/// What all groups of one world have in common.
struct MpiWorld {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  std::vector<int> node_of;  ///< by world rank: lowest rank with which it shares memory
  std::chrono::milliseconds limit{0};
  std::vector<Doorbell*> bells;  ///< by world rank; null: on another node
  flight::FlightRecorder* recorder = nullptr;
  bool explain = true;  ///< a time-out also says in the log what this rank's record says
  /// When the communication thread was last seen outside of MPI, ns; its own.
  std::shared_ptr<const std::atomic<std::int64_t>> beat;
  /// By the lowest rank of a node: time in which bulk operations awaited a message of that node, ns.
  std::unique_ptr<std::atomic<std::int64_t>[]> awaited_ns;
  // Symmetric memory: none before it was asked for
  SharedMemory symmetric;
  std::int64_t symmetric_bytes = 0;
  std::vector<std::byte*> base_of;  ///< by world rank; null: on another node
};

class MpiGroup final : public tensor::Timeline {
 public:
  static constexpr std::size_t box_bytes = 1 << 14;  ///< of a small collective that travel at once
  static constexpr std::size_t queue_places = 256;

  /// Flags and boxes of one member, in memory that its node shares. Zeroed memory is a valid beginning.
  struct Mailbox {
    alignas(64) std::atomic<std::uint64_t> ready;  ///< "I have entered, read what I bring"
    std::atomic<std::uint64_t> what;               ///< digest of its arguments
    alignas(64) std::atomic<std::uint64_t> done;   ///< "I have read what others bring", or "result is out"
    alignas(64) std::byte in[box_bytes];           ///< what it brings to a small collective
    std::byte out[box_bytes];                      ///< the result; only the node's first member writes it
  };

  /// `ranks`: world ranks of the members in order; `mailboxes`: by member, null on other nodes; they lie in
  /// `memory`. `key` names the group among all that share a pair of members.
  MpiGroup(std::shared_ptr<MpiWorld> world, std::string name, std::uint32_t key, std::vector<int> ranks,
           SharedMemory memory, std::vector<Mailbox*> mailboxes);
  ~MpiGroup() override;

  int rank() const { return me_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  MpiWorld& world() const { return *world_; }
  const std::shared_ptr<MpiWorld>& shared_world() const { return world_; }

  // By the caller's thread
  /// A place at the end of the queue with copies of the lists, to be filled in; waits while the queue is
  /// full. Throws when broken. Allocates only for a list that is longer than all before.
  Operation& next(std::span<const Extent> tensors, std::span<const int> arrays_of);
  /// Hands the place over.
  Event enqueue();
  bool passed(std::uint64_t ticket) const override {
    return passed_.load(std::memory_order_acquire) >= ticket;
  }
  void wait(std::uint64_t ticket) override;
  /// Waits for all that was enqueued, or until the group is broken.
  void drain() noexcept;
  /// Nothing of the caller's is touched after this returned. Waits for nobody else.
  void abandon() noexcept;

  // By the communication thread
  /// Enters the flight record, and leaves it.
  void attach();
  void detach();
  /// Does a little; true when something moved.
  bool poll();
  /// No message is under way: the group may be destroyed.
  bool quiet() const { return messages_.none(); }
  /// A collective is in the queue.
  bool busy() const;
  /// It waits for messages or for an event of somebody else: nobody will ring.
  bool must_be_polled() const;
  bool broken() const { return broken_.load(std::memory_order_acquire); }

 private:
  /// Position in the pieces of all tensors' parts, in the order in which everybody goes through them.
  struct Cursor {
    std::size_t tensor = 0;
    std::int64_t first = 0;
    std::size_t peer = 0;  // index into remote_, rotated
    int array = 0;
  };

  // mpi_group.cpp: queue and life
  void begin(Operation& operation);
  void finish(Operation& operation);
  void time_out(const Operation& operation);
  void fail(const Error& error) noexcept;
  bool thread_is_held() const;
  void throw_if_broken() const;
  void note_new_ones();
  void settle();
  std::string missing(const Operation& operation) const;
  void publish(std::atomic<std::uint64_t> Mailbox::*flag);
  bool arrived(int member) const;
  bool all_arrived() const;
  int tag(const Operation& operation) const;
  std::byte* peer_address(int member, const void* mine) const;
  int peer_at(std::size_t index) const { return remote_[(index + rotation_) % remote_.size()]; }
  bool take_messages();
  void await(int member);
  void came(int member);

  // mpi_gather.cpp
  void begin_gather(const Operation& operation);
  bool step_gather(const Operation& operation);
  bool copy_some(const Operation& operation, bool& all);
  bool post_gather(const Operation& operation, bool sends, bool& all);

  // mpi_exchange.cpp: gradients and partial sums
  void begin_exchange(const Operation& operation);
  bool step_exchange(const Operation& operation);
  std::int64_t piece_at(const Operation& operation, Cursor& cursor) const;
  bool receive_piece(const Operation& operation);
  bool reduce_piece(const Operation& operation);
  bool send_pieces(const Operation& operation, bool& all);

  // mpi_small.cpp: all-reduce, broadcast, barrier
  void begin_box(const Operation& operation);
  bool step_small(const Operation& operation);
  void bring(const Operation& operation);
  void post_exchange(const Operation& operation);
  void take_exchange(const Operation& operation);
  void combine(const Operation& operation, std::byte* into, const std::byte* from) const;

  const std::shared_ptr<MpiWorld> world_;
  const std::string name_;
  const std::uint32_t key_;
  const std::vector<int> ranks_;
  const SharedMemory memory_;
  const std::vector<Mailbox*> mailboxes_;
  int me_ = 0;
  std::vector<int> local_, remote_;  // members of this node and of others
  std::vector<int> leaders_;         // the first members of the nodes
  int leader_ = 0;                   // the first member of this node
  std::size_t rotation_ = 0;         // everybody begins with another peer
  int place_ = -1;                   // in the flight recorder

  // The queue: one thread fills, one empties.
  std::vector<Operation> queue_;
  std::vector<std::unique_ptr<Extent[]>> lists_;  // one list per place; the newest is for the longest
  std::size_t list_width_ = 0;
  std::vector<int> arrays_of_;  // a list per place
  std::atomic<std::uint64_t> queued_{0}, passed_{0};
  std::atomic<bool> broken_{false};
  std::optional<Error> failure_;  // written before broken_
  std::mutex mutex_;
  std::condition_variable woken_;
  std::atomic<int> sleepers_{0};
  std::mutex polling_;

  // The collective at the head; the communication thread's.
  enum class Phase {
    waiting,  // for its turn
    moving,   // has been entered
    leaving,  // has all it wants, and waits for others to have read what is ours
  };
  Phase phase_ = Phase::waiting;
  std::uint64_t tick_ = 0, noted_ = 0;
  Clock::time_point deadline_;
  std::vector<std::uint64_t> ordinals_;  // by place in the queue: entry in the flight record
  std::vector<std::uint64_t> heard_;     // by member: tick of its last message
  struct Awaited {
    int first = 0;     // the first member of the same node, whose place counts
    int messages = 0;  // of a bulk operation, that have not come
    std::int64_t since_ns = 0;
  };
  std::vector<Awaited> awaited_;  // by member
  MpiMessages messages_;
  Cursor received_, sent_;  // what was posted

  // Gather
  std::vector<Cursor> copied_;  // by place in local_
  bool past_caches_ = false;    // how they are copied
  // Exchange
  std::int64_t piece_ = 0;
  int arrays_ = 0;  // over all members
  std::vector<std::byte> inbox_[2];
  std::int64_t inbox_stride_ = 0;           // bytes of one array's piece
  int pending_[2] = {0, 0};                 // messages that a half waits for
  std::uint64_t posted_ = 0, reduced_ = 0;  // pieces
  Cursor reducing_;
  std::vector<const void*> sources_;
  tensor::InlineStream inline_;
  // Small
  std::size_t box_at_ = 0, box_count_ = 0;
  std::vector<SmallExchange> exchanges_;  // of this node's first member
  std::size_t exchange_ = 0;              // under way
  std::vector<std::byte> combined_, inbound_;
  bool brought_ = false;
};

}  // namespace holdfast::comm
