// Pieces between ranks by UCX: over TCP (loopback, so that any machine has it) and through shared memory.
// The content of a piece is a function of who sends it to whom under which tag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/comm/peer_exchange.hpp"
#include "tests/support/mpi_main.hpp"

namespace holdfast::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t mebi = std::size_t{1} << 20;

std::uint64_t hash_of(int from, int to, std::uint64_t tag) {
  return mix64(static_cast<std::uint64_t>(from) << 48 ^ static_cast<std::uint64_t>(to) << 32 ^ tag);
}
/// Zero, one, odd and small ones, at and beside the size of a message, several messages.
std::size_t size_of(std::uint64_t hash) {
  const std::size_t sizes[] = {
      0, 1, 7, 4096, 65537, mebi + 3, 8 * mebi - 1, 8 * mebi, 8 * mebi + 1, 19 * mebi + 5};
  return sizes[hash % std::size(sizes)];
}
std::byte byte_of(std::uint64_t hash, std::size_t at) {
  return static_cast<std::byte>((hash + at * 0x9e3779b97f4a7c15u) >> 56);
}
void fill(std::span<std::byte> bytes, std::uint64_t hash) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(hash, i);
}
bool is_filled(std::span<const std::byte> bytes, std::uint64_t hash) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != byte_of(hash, i)) return false;
  return true;
}

struct Way {
  const char* name;
  ExchangeOptions options;
};

class PeerExchangeTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    world_ = tests::session().world(std::chrono::seconds(60));
    rank_ = world_->rank();
    size_ = world_->size();
  }
  /// A list that every rank knows of every rank: tags of what `from` sends `to` in `round`.
  std::vector<std::uint64_t> tags(int from, int to, int round) const {
    std::vector<std::uint64_t> all;
    const std::uint64_t count = hash_of(from, to, 1000u + static_cast<unsigned>(round)) % 6;
    for (std::uint64_t i = 0; i < count; ++i)
      all.push_back(hash_of(from, to, i) % 1000 * 6 + i + (i == 3 ? 0xfffff000u - 6000 : 0));
    return all;
  }
  void exchange_random(PeerExchange& exchange, int round) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<PieceOut> out;
    std::vector<PieceIn> in;
    std::vector<std::uint64_t> expected;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      for (const std::uint64_t tag : tags(rank_, peer, round)) {
        const std::uint64_t hash = hash_of(rank_, peer, tag + static_cast<unsigned>(round));
        fill(memory.emplace_back(size_of(hash)), hash);
        out.push_back({peer, tag, memory.back()});
      }
      for (const std::uint64_t tag : tags(peer, rank_, round)) {
        expected.push_back(hash_of(peer, rank_, tag + static_cast<unsigned>(round)));
        in.push_back({peer, tag, memory.emplace_back(size_of(expected.back()))});
      }
    }
    std::reverse(in.begin(), in.end());
    std::reverse(expected.begin(), expected.end());
    const ExchangeRate rate = exchange.run(out, in, Deadline::in(std::chrono::seconds(60)));
    std::int64_t sent = 0, received = 0;
    for (const auto& piece : out) sent += std::ssize(piece.bytes);
    for (std::size_t i = 0; i < in.size(); ++i) {
      received += std::ssize(in[i].bytes);
      EXPECT_TRUE(is_filled(in[i].bytes, expected[i])) << "round " << round << " piece " << i;
    }
    EXPECT_EQ(rate.sent, sent);
    EXPECT_EQ(rate.received, received);
  }

  std::unique_ptr<Communicator> world_;
  int rank_ = 0, size_ = 1;
};
INSTANTIATE_TEST_SUITE_P(Ways, PeerExchangeTest,
                         ::testing::Values(Way{"tcp", {.network = "lo", .shared_memory = false}},
                                           Way{"memory", {.network = "lo"}}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(PeerExchangeTest, EveryPieceArrivesAsItWasSent) {
  const auto exchange = open_exchange(*world_, GetParam().options);
  for (int round = 0; round < 3; ++round) exchange_random(*exchange, round);
  if (size_ < 2) return;
  EXPECT_THAT(exchange->describe(),
              HasSubstr(GetParam().options.shared_memory ? "shared memory inside the node" : "tcp/lo"));
}

TEST_P(PeerExchangeTest, RanksThatHaveNothingForEachOtherTakeNoPart) {
  const auto exchange = open_exchange(*world_, GetParam().options);
  EXPECT_EQ(exchange->run({}, {}, Deadline::in(std::chrono::seconds(1))).sent, 0);
  if (size_ < 2) return;
  std::vector<std::byte> bytes(3 * mebi);
  if (rank_ == 0) {
    fill(bytes, 17);
    const PieceOut out{1, 5, bytes};
    exchange->run({&out, 1}, {}, Deadline::in(std::chrono::seconds(30)));
  } else if (rank_ == 1) {
    const PieceIn in{0, 5, bytes};
    exchange->run({}, {&in, 1}, Deadline::in(std::chrono::seconds(30)));
    EXPECT_TRUE(is_filled(bytes, 17));
  }
}

TEST_P(PeerExchangeTest, OneThatIsDoneMayGoAtOnce) {
  if (size_ < 2) return;
  // Whoever has its bytes is gone while the other may still wait for the answer.
  for (int i = 0; i < 5; ++i) {
    const auto exchange = open_exchange(*world_, GetParam().options);
    std::vector<std::byte> mine(mebi), theirs(mebi);
    const int to = (rank_ + 1) % size_, from = (rank_ + size_ - 1) % size_;
    fill(mine, static_cast<std::uint64_t>(rank_));
    const PieceOut out{to, 1, mine};
    const PieceIn in{from, 1, theirs};
    exchange->run({&out, 1}, {&in, 1}, Deadline::in(std::chrono::seconds(30)));
    EXPECT_TRUE(is_filled(theirs, static_cast<std::uint64_t>(from)));
  }
}

TEST_P(PeerExchangeTest, WhatNeverComesIsAnErrorThatNamesItsRank) {
  if (size_ < 2) return;
  const auto exchange = open_exchange(*world_, GetParam().options);
  if (rank_ == 0) {
    std::vector<std::byte> bytes(mebi);
    const PieceIn in{size_ - 1, 3, bytes};
    try {
      exchange->run({}, {&in, 1}, Deadline::in(Millis(300)));
      ADD_FAILURE() << "nothing was sent";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::runtime);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(size_ - 1)), HasSubstr("time is up"),
                                      HasSubstr("0 of 1048576 bytes")));
    }
    EXPECT_THROW(exchange->run({}, {&in, 1}, Deadline::in(Millis(300))), Error);
  }
  world_->barrier();
}

TEST_P(PeerExchangeTest, WhatNobodyTakesIsAnErrorToo) {
  if (size_ < 2) return;
  const auto exchange = open_exchange(*world_, GetParam().options);
  if (rank_ == 0) {
    // So small that it leaves without an answer.
    std::vector<std::byte> bytes(8);
    const PieceOut out{1, 3, bytes};
    try {
      exchange->run({&out, 1}, {}, Deadline::in(Millis(300)));
      ADD_FAILURE() << "nobody took it";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("time is up")));
    }
  }
  world_->barrier();
}

TEST_P(PeerExchangeTest, OneThatFallsSilentIsNotWaitedForUntilTheDeadline) {
  if (size_ < 2) return;
  ExchangeOptions options = GetParam().options;
  options.limit = Millis(300);
  const auto exchange = open_exchange(*world_, options);
  std::vector<std::byte> bytes(16);
  const PieceOut out{0, 1, std::span(bytes).first(8)};
  const PieceIn in[] = {{1, 1, std::span(bytes).first(8)}, {1, 2, std::span(bytes).last(8)}};
  if (rank_ == 1) exchange->run({&out, 1}, {}, Deadline::in(std::chrono::seconds(30)));
  if (rank_ == 0) try {
      exchange->run({}, in, Deadline::in(std::chrono::seconds(30)));
      ADD_FAILURE() << "half of it came";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("silent for 300 ms")));
    }
  world_->barrier();
}

TEST_P(PeerExchangeTest, PiecesOfAnotherSizeAreAnError) {
  if (size_ < 2) return;
  const auto exchange = open_exchange(*world_, GetParam().options);
  std::vector<std::byte> bytes(100);
  if (rank_ == 0) {
    const PieceOut out{1, 3, std::span(bytes).first(50)};
    EXPECT_THROW(exchange->run({&out, 1}, {}, Deadline::in(Millis(1000))), Error);
  } else if (rank_ == 1) {
    const PieceIn in{0, 3, bytes};
    try {
      exchange->run({}, {&in, 1}, Deadline::in(std::chrono::seconds(30)));
      ADD_FAILURE() << "half of it came";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("50 bytes came where 100 were due"));
    }
  }
  world_->barrier();
}

TEST_F(PeerExchangeTest, ADeviceThatIsNotThereIsRefusedWithThoseThatAre) {
  if (size_ < 2) return;
  try {
    // The first rank alone is told wrongly; the others must not wait for it.
    open_exchange(*world_, {.network = rank_ == 0 ? "mlx5_9:1" : "lo"});
    ADD_FAILURE() << "there is no such device";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), rank_ == 0 ? Exit::usage : Exit::runtime);
    if (rank_ == 0)
      EXPECT_THAT(error.what(), AllOf(HasSubstr("mlx5_9:1"), HasSubstr("lo")));
    else
      EXPECT_THAT(error.what(), HasSubstr("rank 0"));
  }
}

TEST_F(PeerExchangeTest, TagsAndRanksMustMakeSense) {
  if (size_ < 2) return;
  const auto exchange = open_exchange(*world_, {.network = "lo"});
  std::vector<std::byte> bytes(8);
  const auto refuse = [&](std::vector<PieceOut> out) {
    EXPECT_THROW(exchange->run(out, {}, Deadline::in(Millis(100))), std::logic_error);
  };
  const int other = (rank_ + 1) % size_;
  refuse({{rank_, 1, bytes}});
  refuse({{size_, 1, bytes}});
  refuse({{other, std::uint64_t{1} << 32, bytes}});
  refuse({{other, 1, bytes}, {other, 1, bytes}});
}

}  // namespace
}  // namespace holdfast::comm
