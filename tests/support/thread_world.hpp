#pragma once
// A world of threads that stand for ranks: what waits of a Communicator, and no bulk operations. When one of
// them throws and leaves, the others get an Error instead of waiting for it.
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"

namespace holdfast::tests {

class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : size_(size) {}

  /// The end of `rank`; used by one thread. When it goes away, nobody waits for it any more.
  std::unique_ptr<comm::Communicator> of(int rank) { return std::make_unique<End>(*this, rank); }

 private:
  class End final : public comm::Communicator {
   public:
    End(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
    ~End() override { world_.leave(); }
    int rank() const override { return rank_; }
    int size() const override { return world_.size_; }
    std::span<std::byte> symmetric_memory(std::int64_t) override { never(); }
    comm::Event all_gather(std::span<const comm::Extent>, const comm::Event&) override { never(); }
    comm::Event ordered_reduce_scatter(std::span<const comm::Extent>, comm::OrderedReducer&,
                                       const comm::Event&) override {
      never();
    }
    comm::Event exchange_partial_sums(std::span<const comm::Extent>, std::int64_t, std::span<const int>,
                                      comm::OrderedReducer&, const comm::Event&) override {
      never();
    }
    void all_reduce(std::span<std::uint64_t> words, comm::Scalar how) override {
      world_.meet([&](std::vector<std::uint64_t>& sum, bool first) {
        if (first) sum.assign(words.size(), 0);
        expects(sum.size() == words.size(), "all bring the same number of words");
        for (std::size_t i = 0; i < words.size(); ++i)
          sum[i] = how == comm::Scalar::sum ? sum[i] + words[i] : std::max(sum[i], words[i]);
      });
      std::ranges::copy(world_.result(), words.begin());
      world_.meet([](auto&, bool) {});  // everybody has read
    }
    void broadcast(std::span<std::byte> bytes, int root) override {
      std::vector<std::uint64_t> words((bytes.size() + 7) / 8);
      if (rank_ == root) std::memcpy(words.data(), bytes.data(), bytes.size());
      all_reduce(words, comm::Scalar::sum);
      std::memcpy(bytes.data(), words.data(), bytes.size());
    }
    void barrier() override {
      world_.meet([](auto&, bool) {});
    }
    std::unique_ptr<comm::Communicator> split(int, int, std::string) override { never(); }
    const comm::Wire& wire() const override { return wire_; }
    void abort(std::string_view) noexcept override {}

   private:
    [[noreturn]] static void never() {
      throw Error(Exit::runtime, "threads of a test have no bulk operations");
    }
    ThreadWorld& world_;
    const int rank_;
    comm::Wire wire_;
  };

  template <class Bring>
  void meet(Bring bring) {
    std::unique_lock lock(mutex_);
    bring(words_, arrived_ == 0);
    const int turn = turn_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++turn_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return turn_ != turn || left_ > 0; });
    if (turn_ == turn) throw Error(Exit::runtime, "another rank has left");
  }
  const std::vector<std::uint64_t>& result() const { return words_; }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++left_;
    changed_.notify_all();
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> words_;
  int arrived_ = 0, turn_ = 0, left_ = 0;
};

}  // namespace holdfast::tests
