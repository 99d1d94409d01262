#pragma once
// What peer_communicator and nccl_communicator have in common: a group of ranks with a stream of its own, its
// operations in flight, and how they end.
//
// An operation is numbered 1, 2, ... alike on all members. Its stream writes the number into two words of
// pinned memory, when it begins and behind its end; from these the watch knows how far it is (Watch).
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/comm/communicator.hpp"
#include "src/comm/operation.hpp"
#include "src/cuda/comm/device_communicator.hpp"
#include "src/cuda/comm/watch.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda {

using comm::Extent;
using comm::OrderedReducer;
using flight::Collective;
using tensor::Event;

struct GroupFacts {
  std::string name;
  std::uint64_t key = 0;   ///< in the flight record: equal on all members and in no other group
  std::vector<int> ranks;  ///< of the world, by member
  int me = 0;              ///< member
};

/// Words that a stream writes and the host reads, each in a line of its own.
inline std::uint32_t read_word(const std::uint32_t* word) {
  return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
}
/// Operation `number` is at `word` or behind it, also when the words have wrapped.
inline bool reached(std::uint32_t word, std::uint64_t number) {
  return static_cast<std::int32_t>(word - static_cast<std::uint32_t>(number)) >= 0;
}

class BulkGroup {
 public:
  static constexpr std::uint64_t places = 256;  ///< operations in flight

  virtual ~BulkGroup();
  BulkGroup(const BulkGroup&) = delete;
  BulkGroup& operator=(const BulkGroup&) = delete;

  int size() const { return static_cast<int>(facts_.ranks.size()); }
  const GroupFacts& facts() const { return facts_; }

  // By the caller's thread, see comm::Communicator; `what` is a digest of the arguments, equal on all
  // members.
  virtual Event all_gather(std::span<const Extent> tensors, std::int64_t wire_bytes, std::uint64_t what,
                           const Event& after) = 0;
  /// Member r brings arrays_of[r] arrays per tensor, array k lies k * `stride` elements behind the first.
  struct Exchange {
    Collective kind = Collective::ordered_reduce_scatter;
    std::span<const Extent> tensors;
    std::span<const int> arrays_of;
    std::int64_t stride = 0;
    OrderedReducer* reducer = nullptr;
  };
  virtual Event exchange(const Exchange& call, std::int64_t wire_bytes, std::uint64_t what,
                         const Event& after) = 0;
  /// Waits for all operations, or until the group has failed; for a group that is given up, ends it.
  void finish(bool give_up) noexcept;

  // By the watch, or under its lock
  /// Notes what has happened. A failure that it finds is returned, once.
  std::optional<Error> look();
  /// Something is under way.
  bool busy() const { return passed_ < queued_.load(std::memory_order_acquire); }
  /// Nothing is enqueued from here on, and nothing of ours is taken for good by others.
  void stop(const Error& error) noexcept;
  /// Streams that wait for others wait no longer. Again and again, while something is under way.
  virtual void let_go() noexcept = 0;

 protected:
  BulkGroup(Runtime& runtime, Watch& watch, GroupFacts facts, const CommunicatorOptions& options);
  static StreamOptions stream_options(const CommunicatorOptions& options);
  /// To be called when the set-up is complete.
  void watch();
  /// finish() has been called and no stream comes back to memory of the group. Else it must never be freed.
  bool quiet() const { return quiet_; }

  /// A new operation: `body` enqueues it on stream_, behind `after`, and is given its number. Returns the
  /// point behind it. Throws when the group has failed; waits while `places` are in flight. What `body`
  /// throws ends the group.
  template <class Body>
  Event operation(Collective kind, std::int64_t wire_bytes, std::uint64_t what, const Event& after,
                  const Body& body) {
    const std::uint64_t number = next(kind, wire_bytes, what);
    try {
      begin(number, after);
      body(number);
      return end(number);
    } catch (const Error& error) {
      break_off(number, error);
      throw;
    } catch (const std::logic_error& error) {
      break_off(number, failure_of(number, error));
      throw;  // a mistake in a program, which is no Error
    } catch (const std::exception& error) {
      break_off(number, failure_of(number, error));
      throw failure_of(number, error);
    }
  }
  void throw_if_failed() const;
  /// Number of the newest operation.
  std::uint64_t queued() const { return queued_.load(std::memory_order_acquire); }
  std::string describe(std::uint64_t number) const;
  Error failure_of(std::uint64_t number, const std::exception& cause) const {
    return {Exit::runtime, describe(number) + " failed", cause.what()};
  }
  int rank_of(int member) const { return facts_.ranks[member]; }
  int me() const { return facts_.me; }

  // What the watch asks
  /// A failure besides time.
  virtual std::optional<Error> trouble() = 0;
  /// Of an operation that has begun: that members differ in what they do. Nothing as long as that is not
  /// known.
  virtual std::optional<Error> disagreement(std::uint64_t, std::uint64_t) { return std::nullopt; }
  /// Whom it waits for: "rank 3 has not arrived".
  virtual std::string missing(std::uint64_t number) const = 0;
  /// See stop(). Once.
  virtual void give_nothing_more(const Error& error) noexcept = 0;
  virtual void announce(std::uint64_t number, std::uint64_t what) = 0;

  Runtime& runtime_;
  const std::chrono::milliseconds limit_;
  CudaStream stream_;

 private:
  struct Pending {
    Collective kind = Collective::barrier;
    std::int64_t wire_bytes = 0, enqueued_ns = 0;
    std::uint64_t what = 0, ordinal = 0;
  };
  const Pending& pending(std::uint64_t number) const { return pending_[number % places]; }
  std::uint64_t next(Collective kind, std::int64_t wire_bytes, std::uint64_t what);
  void begin(std::uint64_t number, const Event& after);
  Event end(std::uint64_t number);
  /// Of an operation that is enqueued in part: ends the group, and lets the stream come to an end.
  void break_off(std::uint64_t number, const Error& error) noexcept;
  void note_new_ones();
  Error timed_out(std::uint64_t number) const;
  bool all_ended() const { return reached(read_word(ended_), queued()); }

  Watch& watch_;
  const GroupFacts facts_;
  flight::FlightRecorder* const recorder_;
  const bool explain_;
  int place_ = -1;  // in the flight record
  std::uint32_t *begun_ = nullptr, *ended_ = nullptr;
  bool watched_ = false, quiet_ = true;

  std::vector<Pending> pending_;  // written by the caller before queued_
  std::vector<Event> events_;     // the caller's
  std::atomic<std::uint64_t> queued_{0};
  std::atomic<std::uint64_t> passed_{0};
  std::uint64_t noted_ = 0, started_ = 0;  // the watch's, as the rest
  Clock::time_point deadline_;
  std::optional<Error> failure_;
  std::atomic<bool> failed_{false};
};

}  // namespace holdfast::cuda
