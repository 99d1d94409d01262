// An exchange whose other end dies, is on its way while it dies, or is a thread of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "src/comm/peer_exchange.hpp"
#include "src/comm/ucx_choice.hpp"
#include "tests/comm/forked_world.hpp"

namespace holdfast::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t large = std::size_t{48} << 20;
Deadline in_a_minute() { return Deadline::in(std::chrono::seconds(60)); }

/// What the run says that cannot end.
std::string error_of(PeerExchange& exchange, std::span<const PieceOut> out, std::span<const PieceIn> in) {
  try {
    exchange.run(out, in, in_a_minute());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class PeerDeathTest : public ::testing::TestWithParam<bool> {
 protected:
  /// The life of rank 1, which ends in a kill when `body` returns.
  template <class Body>
  void other(Body body) {
    child_ = ForkedWorld::fork_rank([&] {
      ForkedWorld world(shared_, 1, 2);
      const auto exchange = open_exchange(world, options());
      body(*exchange);
      ::kill(::getpid(), SIGKILL);
    });
    // As mpirun does: in the eyes of UCX a process lives until someone has asked for its end.
    reaper_ = std::thread([this] { ::waitpid(child_, &status_, 0); });
    world_ = std::make_unique<ForkedWorld>(shared_, 0, 2);
    exchange_ = open_exchange(*world_, options());
  }
  void TearDown() override {
    if (reaper_.joinable()) reaper_.join();
    EXPECT_TRUE(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL);
  }
  ExchangeOptions options() const { return {.network = "lo", .shared_memory = GetParam()}; }

  ForkedWorld::Shared& shared_ = ForkedWorld::memory();
  pid_t child_ = -1;
  int status_ = 0;
  std::thread reaper_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<PeerExchange> exchange_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * large);
};
INSTANTIATE_TEST_SUITE_P(Ways, PeerDeathTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "memory" : "tcp"; });

TEST_P(PeerDeathTest, ASenderThatDiesBetweenTwoPieces) {
  other([](PeerExchange& exchange) {
    const std::vector<std::byte> bytes(large);
    const PieceOut first{0, 1, bytes};
    exchange.run({&first, 1}, {}, in_a_minute());
  });
  const PieceIn in[] = {{1, 1, std::span(bytes_).first(large)}, {1, 2, std::span(bytes_).last(large)}};
  EXPECT_THAT(error_of(*exchange_, {}, in),
              AllOf(HasSubstr("with rank 1"), HasSubstr("50331648 of 100663296 bytes came"),
                    Not(HasSubstr("time is up"))));
}

TEST_P(PeerDeathTest, AReceiverThatDiesBetweenTwoPieces) {
  other([](PeerExchange& exchange) {
    std::vector<std::byte> bytes(large);
    const PieceIn first{0, 1, bytes};
    exchange.run({}, {&first, 1}, in_a_minute());
  });
  const PieceOut out[] = {{1, 1, std::span(bytes_).first(large)}, {1, 2, std::span(bytes_).last(large)}};
  EXPECT_THAT(error_of(*exchange_, out, {}), AllOf(HasSubstr("with rank 1"), Not(HasSubstr("time is up"))));
}

TEST_P(PeerDeathTest, OneThatDiesBeforeItIsSpokenTo) {
  other([](PeerExchange&) {});
  reaper_.join();
  const PieceOut out{1, 1, bytes_};
  EXPECT_THAT(error_of(*exchange_, {&out, 1}, {}), HasSubstr("rank 1"));
}

TEST_P(PeerDeathTest, OneThatDiesInTheMiddleOfAPiece) {
  other([](PeerExchange& exchange) {
    const std::vector<std::byte> bytes(2 * large);
    std::thread([] {
      std::this_thread::sleep_for(Millis(3));
      ::kill(::getpid(), SIGKILL);
    }).detach();
    const PieceOut out{0, 1, bytes};
    exchange.run({&out, 1}, {}, in_a_minute());
  });
  const PieceIn in{1, 1, bytes_};
  // A fast machine may have sent all of it by then.
  EXPECT_THAT(error_of(*exchange_, {}, {&in, 1}), ::testing::AnyOf(HasSubstr("rank 1"), "no error"));
}

TEST(PeerExchangeThreads, FourEndsInOneProcess) {
  constexpr int size = 4;
  ForkedWorld::Shared& shared = ForkedWorld::memory();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&shared, rank] {
      ForkedWorld world(shared, rank, size);
      const auto exchange = open_exchange(world, {.network = "lo"});
      for (int round = 0; round < 3; ++round) {
        const std::vector<std::byte> mine(std::size_t{9} << 20, static_cast<std::byte>(rank + round));
        std::vector<std::vector<std::byte>> theirs(size, std::vector<std::byte>(mine.size()));
        std::vector<PieceOut> out;
        std::vector<PieceIn> in;
        for (int peer = 0; peer < size; ++peer)
          if (peer != rank) {
            out.push_back({peer, 7, mine});
            in.push_back({peer, 7, theirs[peer]});
          }
        exchange->run(out, in, in_a_minute());
        for (const auto& piece : in)
          EXPECT_EQ(
              std::count(piece.bytes.begin(), piece.bytes.end(), static_cast<std::byte>(piece.from + round)),
              std::ssize(piece.bytes));
      }
    });
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace holdfast::comm
