#pragma once
// PeerExchange between threads of a test that stand for ranks. As strict as the network: a send is over when
// its bytes were taken, sizes must agree, and everything has a deadline. A test can kill a rank, and spoil
// what one sends.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "src/base/error.hpp"
#include "src/comm/peer_exchange.hpp"

namespace holdfast::tests {

/// What the ranks of one exchange know of each other. Outlives their exchanges.
class FakeNetwork {
 public:
  explicit FakeNetwork(int world) : world_(world) {}

  /// The end of `rank`; used by one thread at a time.
  std::unique_ptr<comm::PeerExchange> of(int rank) { return std::make_unique<End>(*this, rank); }

  /// Whoever waits for `rank`, now or later, gets an Error that names it.
  void kill(int rank) {
    const std::lock_guard lock(mutex_);
    dead_.insert(rank);
    changed_.notify_all();
  }
  /// The next piece that `rank` sends with `tag` arrives with one bit of its first byte flipped.
  void spoil(int rank, std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    spoilt_.insert({rank, tag});
  }
  /// Bytes that went from one rank to another so far.
  std::int64_t moved(int from, int to) {
    const std::lock_guard lock(mutex_);
    return moved_[{from, to}];
  }

  /// `body(rank)` on `world` threads. What one throws is thrown here when all have ended.
  template <class Body>
  static void each_rank(int world, Body body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> thrown(world);
    for (int rank = 0; rank < world; ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          thrown[rank] = std::current_exception();
        }
      });
    for (auto& thread : threads) thread.join();
    for (const auto& error : thrown)
      if (error) std::rethrow_exception(error);
  }

 private:
  using Key = std::tuple<int, int, std::uint64_t>;  // from, to, tag
  using Mail = std::multimap<Key, std::span<const std::byte>>;

  class End final : public comm::PeerExchange {
   public:
    End(FakeNetwork& net, int rank) : net_(net), rank_(rank) {}
    comm::ExchangeRate run(std::span<const comm::PieceOut> out, std::span<const comm::PieceIn> in,
                           const Deadline& deadline) override {
      return net_.run(rank_, out, in, deadline);
    }
    std::string describe() const override { return "threads of one process"; }

   private:
    FakeNetwork& net_;
    int rank_;
  };

  comm::ExchangeRate run(int rank, std::span<const comm::PieceOut> out, std::span<const comm::PieceIn> in,
                         const Deadline& deadline) {
    const auto start = Clock::now();
    comm::ExchangeRate rate;
    std::unique_lock lock(mutex_);
    for (const auto& piece : out) {
      expects(piece.to >= 0 && piece.to < world_ && piece.to != rank, "a piece goes to another rank");
      mail_.emplace(Key{rank, piece.to, piece.tag}, piece.bytes);
      rate.sent += std::ssize(piece.bytes);
    }
    changed_.notify_all();
    std::vector<const comm::PieceIn*> awaited;
    for (const auto& piece : in) {
      expects(piece.from >= 0 && piece.from < world_ && piece.from != rank,
              "a piece comes from another rank");
      awaited.push_back(&piece);
      rate.received += std::ssize(piece.bytes);
    }
    for (;;) {
      std::erase_if(awaited, [&](const comm::PieceIn* piece) { return take(rank, *piece); });
      const auto mine = std::find_if(mail_.begin(), mail_.end(),
                                     [&](const auto& m) { return std::get<0>(m.first) == rank; });
      if (awaited.empty() && mine == mail_.end()) break;
      const int peer = !awaited.empty() ? awaited.front()->from : std::get<1>(mine->first);
      if (dead_.contains(peer)) give_up(rank, peer, "it is gone");
      if (deadline.passed()) give_up(rank, peer, "time is up");
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.left(), Millis(50)));
    }
    rate.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return rate;
  }

  bool take(int rank, const comm::PieceIn& piece) {
    const auto found = mail_.find({piece.from, rank, piece.tag});
    if (found == mail_.end()) return false;
    expects(found->second.size() == piece.bytes.size(), "both sides agree on the size of a piece");
    if (!piece.bytes.empty()) {
      std::memcpy(piece.bytes.data(), found->second.data(), piece.bytes.size());
      if (spoilt_.erase({piece.from, piece.tag}) > 0) piece.bytes.front() ^= std::byte{1};
    }
    moved_[{piece.from, rank}] += std::ssize(piece.bytes);
    mail_.erase(found);
    changed_.notify_all();
    return true;
  }

  /// Takes back what nobody fetched: its memory may be gone after the Error.
  [[noreturn]] void give_up(int rank, int peer, const char* why) {
    std::erase_if(mail_, [&](const auto& m) { return std::get<0>(m.first) == rank; });
    throw Error(Exit::runtime, fmt::format("the exchange of state with rank {} failed", peer), why);
  }

  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Mail mail_;
  std::set<int> dead_;
  std::set<std::pair<int, std::uint64_t>> spoilt_;
  std::map<std::pair<int, int>, std::int64_t> moved_;
};

}  // namespace holdfast::tests
