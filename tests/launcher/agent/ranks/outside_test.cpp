// What an agent sees of ranks from outside, and which of it is a sign of life.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "launcher/agent/ranks/outside_look.hpp"
#include "launcher/agent/ranks/signs_of_life.hpp"
#include "src/base/files.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

std::string sign_after(const std::vector<RankGrowth>& looks) {
  SignsOfLife life;
  double now = 100;
  for (const auto& look : looks) life.take({now += 1, 1, {{3, look}}});
  const auto seen = life.seen(2, now);
  return seen.front().still_ms == 0 ? seen.front().sign : "";
}

TEST(SignsOfLife, WhatCounts) {
  EXPECT_EQ(sign_after({{.printed = 1}}), "output");
  EXPECT_EQ(sign_after({{.network = 1 << 20}}), "network");
  EXPECT_EQ(sign_after({{.rdma = 1 << 20}}), "links");
  EXPECT_EQ(sign_after({{.nvlinks = std::int64_t{1} << 40}, {.rdma = 1 << 20}}), "links")
      << "ports and NVLinks each by their own most";
  EXPECT_EQ(sign_after({{.files = 1 << 20}}), "files");
  EXPECT_EQ(sign_after({{.touched = true}}), "heartbeat");
}

TEST(SignsOfLife, ProcessorTimeAndKeepAlivesDoNot) {
  EXPECT_EQ(sign_after({{.cpu_ms = 1000, .state = 'R'}}), "");
  EXPECT_EQ(sign_after({{.files = 4096, .network = 4096, .rdma = 4096, .nvlinks = 4096}}), "");
  EXPECT_EQ(sign_after({{.network = 1 << 30}, {.network = 1 << 19}}), "") << "a thousandth of what it moves";
}

TEST(SignsOfLife, TheMostThatWasMovedFades) {
  SignsOfLife life;
  life.take({101, 1, {{3, {.network = std::int64_t{1} << 40}}}});
  life.take({102, 1, {{3, {.network = 1 << 20}}}});
  EXPECT_EQ(life.seen(2, 102).front().still_ms, 1000);
  life.take({14502, 14400, {{3, {.network = std::int64_t{14400} << 20}}}});
  EXPECT_EQ(life.seen(2, 14502).front().still_ms, 0);
}

TEST(SignsOfLife, ASuspensionIsNoSilence) {
  SignsOfLife life;
  life.look_begins(100);
  life.take({101, 1, {{3, {.printed = 1}}}});
  life.look_begins(102);
  life.take({102, 1, {{3, {}}}});
  EXPECT_EQ(life.seen(2, 102).front().still_ms, 1000);
  life.look_begins(7302);
  life.take({7302, 7200, {{3, {}}}});
  EXPECT_EQ(life.seen(2, 7302).front().still_ms, 1000);
  life.look_begins(7303);
  EXPECT_EQ(life.seen(2, 7303).front().still_ms, 2000);
}

TEST(SignsOfLife, ALookThatSawNothingEndsNoRank) {
  SignsOfLife life;
  life.take({101, 1, {{3, {.printed = 1}}}});
  life.take({102, 0, {}});
  EXPECT_TRUE(life.seen(2, 102).empty()) << "who sees nothing sees no silence";
  life.take({103, 2, {{3, {}}}});
  ASSERT_EQ(life.seen(2, 103).size(), 1u);
  EXPECT_EQ(life.seen(2, 103).front().still_ms, 2000);
}

TEST(SignsOfLife, OfAProgramThatTouchesItsFileNothingElseCounts) {
  EXPECT_EQ(sign_after({{.touched = true}, {.printed = 100, .network = 1 << 20}}), "");
}

TEST(SignsOfLife, TheAgeIsOfTheLastSign) {
  SignsOfLife life;
  life.take({101, 1, {{3, {.printed = 1}}, {4, {}}}});
  life.take({102, 1, {{3, {.cpu_ms = 970, .state = 'R'}}, {4, {.state = 'T'}}}});
  const auto seen = life.seen(2, 102);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].still_ms, 1000);
  EXPECT_EQ(seen[0].cpu_percent, 97);
  EXPECT_EQ(seen[1].sign, "");
  EXPECT_EQ(seen[1].still_ms, 2000) << "since before the first look";
  EXPECT_EQ(seen[1].state, "T");
}

TEST(SignsOfLife, RanksThatAreNotLookedAtAnyMoreHaveEnded) {
  SignsOfLife life;
  life.take({101, 1, {{3, {.printed = 1}}, {4, {.printed = 1}}}});
  life.take({102, 1, {{4, {}}}});
  ASSERT_EQ(life.seen(2, 102).size(), 1u);
  EXPECT_EQ(life.seen(2, 102).front().rank, 4);
}

TEST(SignsOfLife, ALookThatHangsIsToldOfAllThatShouldBeLookedAt) {
  SignsOfLife life;
  life.take({101, 1, {{3, {.printed = 1}}}});
  life.cannot_look({{3, {}, {}}, {4, {}, {}}}, 105);
  const auto seen = life.seen(2, 106);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].state, "-");
  EXPECT_EQ(seen[0].still_ms, 5000);
  EXPECT_EQ(seen[0].sign, "output");
  EXPECT_EQ(seen[1].state, "-");
  EXPECT_EQ(seen[1].sign, "");
}

/// Two connected sockets of this process.
struct Pair {
  files::Fd listening{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)},
      out{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)}, in;
  Pair() {
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_addr = in6addr_loopback;
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listening.get(), 1), 0);
    EXPECT_EQ(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    EXPECT_EQ(::connect(out.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    in = files::Fd(::accept(listening.get(), nullptr, nullptr));
  }
  static std::uint64_t inode(const files::Fd& fd) {
    struct stat facts {};
    ::fstat(fd.get(), &facts);
    return facts.st_ino;
  }
};

TEST(OutsideLook, TheKernelTellsPayloadOfSockets) {
  const Pair pair;
  const std::string sent(100000, 'x');
  std::string got(sent.size(), ' ');
  std::thread sender(
      [&] { EXPECT_EQ(::send(pair.out.get(), sent.data(), sent.size(), 0), ssize_t(sent.size())); });
  EXPECT_EQ(::recv(pair.in.get(), got.data(), got.size(), MSG_WAITALL), ssize_t(got.size()));
  sender.join();
  const auto payload = tcp_payload();
  if (!payload) GTEST_SKIP() << "this kernel does not tell (it has no tcp_diag)";
  ASSERT_TRUE(payload->contains(Pair::inode(pair.in)));
  EXPECT_GE(payload->at(Pair::inode(pair.in)), 100000);
  EXPECT_LT(payload->at(Pair::inode(pair.in)), 101000) << "in bytes";
}

TEST(OutsideLook, RdmaPortsCountWordsOfFourBytesAndThoseOfEfaBytes) {
  const control::test::Folder folder;
  for (const char* device : {"mlx5_0", "mlx5_1"}) {
    const auto counters = folder.path / "class/infiniband" / device / "ports/1/counters";
    std::filesystem::create_directories(counters);
    std::ofstream(counters / "port_xmit_data") << "100\n";
    std::ofstream(counters / "port_rcv_data") << "7\n";
  }
  const auto efa = folder.path / "class/infiniband/rdmap0s6/ports/1/hw_counters";
  std::filesystem::create_directories(efa);
  std::ofstream(efa / "tx_bytes") << "1000\n";
  std::ofstream(efa / "rx_bytes") << "1\n";
  std::int64_t sum = 0;
  for (const auto& [counter, bytes] : rdma_bytes(folder.path)) sum += bytes;
  EXPECT_EQ(sum, 2 * 107 * 4 + 1001);
  EXPECT_TRUE(rdma_bytes(folder.path / "nothing").empty());
}

TEST(OutsideLook, SaysWhenALookHangs) {
  const control::test::Folder folder;
  const auto counters = folder.path / "class/infiniband/mlx5_0/ports/1/counters";
  std::filesystem::create_directories(counters);
  const auto pipe = counters / "port_xmit_data";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);  // who opens it waits for a writer
  control::test::LoopThread thread;
  auto outside = thread.call([&] {
    return std::make_unique<OutsideLook>(thread.loop, RunDir{folder.path}, "n0", folder.path, Millis(1));
  });
  bool ended = false;
  const auto look = [&] { return outside->look(1, {}, [&](const Growths&) { ended = true; }); };
  EXPECT_TRUE(thread.call(look));
  EXPECT_TRUE(thread.until([&] { return !look(); }));
  ::close(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_TRUE(thread.until([&] { return ended; }));
  std::filesystem::remove(pipe);
  EXPECT_TRUE(thread.call(look)) << "looks anew";
  thread.call([&] { outside.reset(); });
}

TEST(OutsideLook, WhatCountersSayAtFirstIsNoGrowth) {
  Counters before;
  EXPECT_EQ(growth_since(before, {{"0", 1000000}}), 0) << "since its driver was loaded";
  EXPECT_EQ(growth_since(before, {{"0", 1000100}, {"1", 5000}}), 100);
  EXPECT_EQ(growth_since(before, {{"0", 1000300}, {"1", 5001}}), 201);
  EXPECT_EQ(growth_since(before, {{"0", 7}, {"1", 5003}}), 2) << "one has begun anew";
  EXPECT_EQ(growth_since(before, {}), 0);
  EXPECT_EQ(growth_since(before, {{"0", 50}, {"1", 9000}}), 0) << "there was no answer before";
}

}  // namespace
}  // namespace holdfast::launcher
