#pragma once
// A world of a few ranks without MPI, so that one can be killed: the caller is rank 0, the others are forked,
// or threads. It does what the opening of an exchange needs.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "src/base/error.hpp"
#include "src/comm/communicator.hpp"

namespace holdfast::comm {

class ForkedWorld final : public Communicator {
 public:
  static constexpr int most = 4, words = 4096;
  struct Shared {
    std::atomic<int> here{0}, round{0};
    std::uint64_t brought[most][words]{};
  };

  /// Memory for a world, also of processes that are forked from now on.
  static Shared& memory() {
    void* at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expects(at != MAP_FAILED, "there is memory");
    return *new (at) Shared;
  }
  /// `body` as another process; its number.
  template <class Body>
  static pid_t fork_rank(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        body();
      } catch (const std::exception&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    return child;
  }

  ForkedWorld(Shared& shared, int rank, int size) : shared_(shared), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(std::span<std::uint64_t> values, Scalar how) override {
    expects(values.size() <= words && how == Scalar::sum, "a small sum");
    std::copy(values.begin(), values.end(), shared_.brought[rank_]);
    barrier();
    std::fill(values.begin(), values.end(), 0);
    for (int rank = 0; rank < size_; ++rank)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += shared_.brought[rank][i];
    barrier();
  }
  void barrier() override {
    const int round = shared_.round;
    if (++shared_.here == size_) {
      shared_.here = 0;
      ++shared_.round;
    } else {
      while (shared_.round == round) std::this_thread::yield();
    }
  }

  std::span<std::byte> symmetric_memory(std::int64_t) override { return unused(), std::span<std::byte>(); }
  Event all_gather(std::span<const Extent>, const Event&) override { return unused(); }
  Event ordered_reduce_scatter(std::span<const Extent>, OrderedReducer&, const Event&) override {
    return unused();
  }
  Event exchange_partial_sums(std::span<const Extent>, std::int64_t, std::span<const int>, OrderedReducer&,
                              const Event&) override {
    return unused();
  }
  void broadcast(std::span<std::byte>, int) override { unused(); }
  std::unique_ptr<Communicator> split(int, int, std::string) override { return unused(), nullptr; }
  const Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override { std::abort(); }

 private:
  static Event unused() {
    expects(false, "not used here");
    return {};
  }
  Shared& shared_;
  int rank_, size_;
  Wire wire_;
};

}  // namespace holdfast::comm
