#pragma once
// Ranks that are threads of this process: more of them than a test could start, in an order of events that a
// seed spoils on purpose, and visible to ThreadSanitizer. Asynchronous as the interface says: every rank has
// a worker that serves its groups' queues in any order, and an operation's memory is read by others at any
// moment between its call and its event.
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"

namespace holdfast::shard {

class ThreadWorld {
 public:
  /// `body(rank, world)` runs on `size` threads.
  template <class Body>
  static void run(int size, std::uint64_t seed, Body body) {
    ThreadWorld all(size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        Worker worker(all, mix64(seed * 1000 + static_cast<std::uint64_t>(rank)));
        Member world(all, all.group(-1, 0, size), rank, rank, worker);
        body(rank, static_cast<comm::Communicator&>(world));
        all.everybody_.arrive_and_wait();
      });
    for (auto& thread : threads) thread.join();
  }

 private:
  enum class Kind { gather, gradients, partial_sums };
  struct Operation {
    Kind kind{};
    std::uint64_t ticket = 0;
    std::vector<comm::Extent> tensors;
    std::int64_t array_stride = 0;
    std::vector<int> arrays_of;
    comm::OrderedReducer* reducer = nullptr;
    comm::Event after;
  };
  /// What the members of a group know of each other.
  struct Group {
    explicit Group(int members) : size(members), together(members), arrived(as_size(members)) {
      for (auto& ticket : arrived) ticket = 0;
      done = std::vector<std::atomic<std::uint64_t>>(members);
      current.resize(members);
      base.resize(members);
    }
    int size;
    std::barrier<> together;
    std::vector<std::atomic<std::uint64_t>> arrived, done;  // by member: its latest ticket
    std::vector<const Operation*> current;                  // by member, valid between arrival and event
    std::vector<std::byte*> base;                           // by member: its symmetric memory
  };
  class Member;

  /// A rank's communication thread.
  class Worker {
   public:
    Worker(ThreadWorld& all, std::uint64_t seed) : all_(all), state_(seed), thread_([this] { serve(); }) {}
    ~Worker() {
      stop_ = true;
      all_.something_happened();
      thread_.join();
    }
    void add(Member* member) {
      const std::lock_guard lock(mutex_);
      members_.push_back(member);
    }
    void remove(Member* member) {
      const std::lock_guard lock(mutex_);
      std::erase(members_, member);
    }
    std::uint64_t random() { return state_ = mix64(state_); }

   private:
    void serve() {
      while (!stop_) {
        const int seen = all_.happened_;
        bool moved = false;
        {
          const std::lock_guard lock(mutex_);
          const std::size_t first = random();
          for (std::size_t i = 0; i < members_.size() && !moved; ++i)
            moved = members_[(first + i) % members_.size()]->poll();
        }
        if (moved)
          all_.something_happened();
        else
          all_.happened_.wait(seen);
      }
    }
    ThreadWorld& all_;
    std::uint64_t state_;
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::vector<Member*> members_;
    std::thread thread_;
  };

  class Member final : public comm::Communicator, tensor::Timeline {
   public:
    Member(ThreadWorld& all, Group& group, int rank, int world_rank, Worker& worker)
        : all_(all), group_(group), rank_(rank), world_rank_(world_rank), worker_(worker) {
      const auto me = as_size(rank_);
      group_.base[me] = all_.memory_of(world_rank_).data();
      group_.arrived[me] = group_.done[me] = 0;
      group_.together.arrive_and_wait();
      worker_.add(this);
    }
    ~Member() override { worker_.remove(this); }

    int rank() const override { return rank_; }
    int size() const override { return group_.size; }
    std::span<std::byte> symmetric_memory(std::int64_t bytes) override {
      expects(bytes <= room, "enough room for a test");
      return all_.memory_of(world_rank_).first(bytes);
    }
    comm::Event all_gather(std::span<const comm::Extent> tensors, const comm::Event& after) override {
      for (const auto& t : tensors)
        wire_.all_gather += part_of(t, rank_).second * tensor::bytes_of(t.type) * (size() - 1);
      return enqueue({Kind::gather, 0, {tensors.begin(), tensors.end()}, 0, {}, nullptr, after});
    }
    comm::Event ordered_reduce_scatter(std::span<const comm::Extent> tensors, comm::OrderedReducer& reducer,
                                       const comm::Event& after) override {
      for (const auto& t : tensors)
        wire_.ordered_reduce_scatter += (t.elements - part_of(t, rank_).second) * tensor::bytes_of(t.type);
      return enqueue({Kind::gradients,
                      0,
                      {tensors.begin(), tensors.end()},
                      0,
                      std::vector<int>(size(), 1),
                      &reducer,
                      after});
    }
    comm::Event exchange_partial_sums(std::span<const comm::Extent> tensors, std::int64_t array_stride,
                                      std::span<const int> sums_of, comm::OrderedReducer& reducer,
                                      const comm::Event& after) override {
      for (const auto& t : tensors)
        wire_.exchange_partial_sums += (t.elements - part_of(t, rank_).second) * 4 * sums_of[rank_];
      return enqueue({Kind::partial_sums,
                      0,
                      {tensors.begin(), tensors.end()},
                      array_stride,
                      {sums_of.begin(), sums_of.end()},
                      &reducer,
                      after});
    }
    void all_reduce(std::span<std::uint64_t>, comm::Scalar) override { expects(false, "not used here"); }
    void broadcast(std::span<std::byte>, int) override { expects(false, "not used here"); }
    void barrier() override {
      wait(enqueued_);
      group_.together.arrive_and_wait();
    }
    std::unique_ptr<comm::Communicator> split(int color, int key, std::string) override {
      all_.register_split(splits_, color, key, world_rank_);
      group_.together.arrive_and_wait();
      const auto [members, place] = all_.place_in_split(splits_, color, world_rank_);
      Group& part = all_.group(splits_++, color, members);
      group_.together.arrive_and_wait();
      return std::make_unique<Member>(all_, part, place, world_rank_, worker_);
    }
    const comm::Wire& wire() const override { return wire_; }
    void abort(std::string_view) noexcept override { std::abort(); }

    bool passed(std::uint64_t ticket) const override {
      return passed_.load(std::memory_order_acquire) >= ticket;
    }
    void wait(std::uint64_t ticket) override {
      for (int seen = all_.happened_; !passed(ticket); seen = all_.happened_) all_.happened_.wait(seen);
    }

    /// Takes the operation at the head of the queue one state further, if it can.
    bool poll() {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      Operation& op = queue_.front();
      const auto me = as_size(rank_);
      if (state_ == State::waits) {
        if (!op.after.passed()) return false;
        group_.current[me] = &op;
        group_.arrived[me].store(op.ticket, std::memory_order_release);
        state_ = State::ready;
      } else if (state_ == State::ready) {
        if (!all_have(group_.arrived, op.ticket)) return false;
        carry_out(op);
        group_.done[me].store(op.ticket, std::memory_order_release);
        state_ = State::done;
      } else {
        if (!all_have(group_.done, op.ticket)) return false;
        passed_.store(op.ticket, std::memory_order_release);
        queue_.pop_front();
        state_ = State::waits;
      }
      return true;
    }

   private:
    enum class State { waits, ready, done };

    /// First element and count of a member's part.
    static std::pair<std::int64_t, std::int64_t> part_of(const comm::Extent& t, int member) {
      const std::int64_t first = std::min(t.elements, member * t.part);
      return {first, std::min(t.elements, first + t.part) - first};
    }
    static bool all_have(const std::vector<std::atomic<std::uint64_t>>& tickets, std::uint64_t ticket) {
      for (const auto& t : tickets)
        if (t.load(std::memory_order_acquire) < ticket) return false;
      return true;
    }
    comm::Event enqueue(Operation op) {
      for (const auto& t : op.tensors) expects(t.elements <= size() * t.part, "all parts have room");
      const std::lock_guard lock(mutex_);
      op.ticket = ++enqueued_;
      queue_.push_back(std::move(op));
      all_.something_happened();
      return {this, enqueued_};
    }
    /// `member`'s copy of tensor t, at the same offset of its symmetric memory.
    std::byte* of(const Operation& op, int member, std::size_t t) const {
      const Operation& theirs = *group_.current[member];
      expects(theirs.kind == op.kind && theirs.tensors.size() == op.tensors.size() &&
                  theirs.tensors[t].elements == op.tensors[t].elements &&
                  theirs.tensors[t].part == op.tensors[t].part &&
                  theirs.tensors[t].type == op.tensors[t].type,
              "all members make the same call");
      auto* data = static_cast<std::byte*>(theirs.tensors[t].data);
      expects(data - group_.base[member] == static_cast<std::byte*>(op.tensors[t].data) - group_.base[rank_],
              "tensors lie at the same offsets on all members");
      return data;
    }
    void carry_out(const Operation& op) {
      for (std::size_t t = 0; t < op.tensors.size(); ++t) {
        const comm::Extent& tensor = op.tensors[t];
        const std::int64_t bytes = tensor::bytes_of(tensor.type);
        if (op.kind == Kind::gather) {
          // Whole parts, as NCCL gathers them.
          for (int member = 0; member < size() && tensor.elements > 0; ++member)
            if (member != rank_)
              std::copy_n(of(op, member, t) + member * tensor.part * bytes, tensor.part * bytes,
                          static_cast<std::byte*>(tensor.data) + member * tensor.part * bytes);
          continue;
        }
        const auto [begin, total] = part_of(tensor, rank_);
        for (std::int64_t at = 0, count = 0; at < total; at += count) {
          count = std::min<std::int64_t>(total - at, 1 + static_cast<std::int64_t>(worker_.random() % 5000));
          std::vector<const void*> sources;
          tensor::InlineStream inline_stream;
          for (int member = 0; member < size(); ++member)
            for (int k = 0; k < op.arrays_of[member]; ++k)
              sources.push_back(of(op, member, t) + (begin + at + k * op.array_stride) * bytes);
          op.reducer->reduce(inline_stream, static_cast<int>(t), at, count, sources);
        }
      }
    }

    ThreadWorld& all_;
    Group& group_;
    int rank_, world_rank_, splits_ = 0;
    Worker& worker_;
    comm::Wire wire_;
    std::mutex mutex_;
    std::deque<Operation> queue_;
    State state_ = State::waits;
    std::uint64_t enqueued_ = 0;
    std::atomic<std::uint64_t> passed_{0};
  };

  static constexpr std::int64_t room = 16 << 20;
  static constexpr std::size_t page = 4096;

  explicit ThreadWorld(int size) : everybody_(size) {
    for (int rank = 0; rank < size; ++rank) memory_.emplace_back(room + page);
  }
  std::span<std::byte> memory_of(int rank) {
    auto& all = memory_[rank];
    const std::size_t skip = page - reinterpret_cast<std::uintptr_t>(all.data()) % page;
    return {all.data() + skip, as_size(room)};
  }
  Group& group(int split, int color, int members) {
    const std::lock_guard lock(mutex_);
    auto& found = groups_[{split, color}];
    if (!found) found = std::make_unique<Group>(members);
    return *found;
  }
  void register_split(int split, int color, int key, int rank) {
    const std::lock_guard lock(mutex_);
    splits_[{split, color}][{key, rank}] = rank;
  }
  /// Members of the part, and the rank's place among them.
  std::pair<int, int> place_in_split(int split, int color, int rank) {
    const std::lock_guard lock(mutex_);
    const auto& members = splits_[{split, color}];
    int place = 0;
    for (const auto& [key, member] : members) {
      if (member == rank) break;
      ++place;
    }
    return {static_cast<int>(members.size()), place};
  }

  /// Wakes whoever waits for anything.
  void something_happened() {
    ++happened_;
    happened_.notify_all();
  }

  std::atomic<int> happened_{0};
  std::barrier<> everybody_;
  std::vector<std::vector<std::byte>> memory_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<Group>> groups_;
  std::map<std::pair<int, int>, std::map<std::pair<int, int>, int>> splits_;
};

}  // namespace holdfast::shard
