#include "launcher/agent/mover/mover.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/agent/mover/seals.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/control/bulk.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using control::test::Folder;
using control::test::LoopThread;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// A mover in the memory of its own node.
struct MoverNode {
  MoverNode(LoopThread& thread, const control::Key& secret, const fs::path& under)
      : folder(under), mover(std::make_unique<Mover>(thread.loop, under / "buffers", secret)) {}
  Mover::Place place() const { return {{"127.0.0.1"}, mover->port()}; }
  fs::path generation(int rank, bool copy, int number) const {
    return folder / "buffers" / folder_name(rank, copy) / std::to_string(number);
  }
  fs::path folder;
  std::unique_ptr<Mover> mover;
};

class MoverTest : public testing::Test {
 protected:
  MoverTest() {
    fs::permissions(a_memory.path, fs::perms::owner_all);
    fs::permissions(b_memory.path, fs::perms::owner_all);
  }
  /// As a rank does.
  static Seal sealed_by_rank(const MoverNode& node, int rank, int generation, std::int64_t step, int attempt,
                             const std::string& content) {
    const fs::path at = node.generation(rank, false, generation);
    fs::create_directories(at);
    std::ofstream(at / "model.buffer", std::ios::binary) << content;
    const Seal seal{
        step, attempt, 8, {{"model", std::ssize(content), crc32_of(0, content.data(), content.size())}}};
    files::replace_atomically(at / "seal", to_text(seal));
    return seal;
  }
  bool soon(const std::function<bool()>& there) { return thread.until(there); }
  static bool is_dealt_with(const MoverNode& node, int rank, const std::string& what) {
    const fs::path file = node.folder / "buffers" / folder_name(rank, false) / "copied";
    return fs::exists(file) && files::read_text(file) == what;
  }
  Mover::Fetched fetch(MoverNode& node, const MoverNode& from, int rank, std::int64_t step, int attempt) {
    std::optional<Mover::Fetched> answer;
    node.mover->fetch({{rank, from.place()}}, step, attempt,
                      [&](const Mover::Fetched& what) { answer = what; });
    EXPECT_TRUE(soon([&] { return answer.has_value(); }));
    return answer.value_or(Mover::Fetched{});
  }

  const control::Key secret = control::random_key();
  Folder a_memory, b_memory;
  LoopThread thread;
  MoverNode a{thread, secret, a_memory.path}, b{thread, secret, b_memory.path};
  const std::string three_mib = std::string(3 << 20, 'x') + "end";
};

TEST_F(MoverTest, ARankDoesNotWaitForAPartnerThatIsNotThere) {
  sealed_by_rank(a, 3, 0, 12, 2, "x");
  a.mover->begin({2, {{"127.0.0.1"}, 1}, {3}, -1, 0});
  a.mover->copy(3);
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, 3, "2 12\n"); }));
  sealed_by_rank(a, 3, 1, 13, 2, "y");
  a.mover->copy(3);
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, 3, "2 13\n"); })) << "none is tried for a while";
}

TEST_F(MoverTest, CopiesWhatIsSealedAndFetchesItBack) {
  sealed_by_rank(a, 3, 0, 12, 2, three_mib);
  a.mover->begin({2, b.place(), {3}, -1, 0});
  a.mover->copy(3);
  ASSERT_TRUE(soon([&] { return !b.mover->sealed().empty(); }));
  EXPECT_THAT(b.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 12, 2, 8, true}));
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, 3, "2 12\n"); })) << "its rank waits for that";
  // The node of the rank is lost; another one gets its state.
  Folder c_memory;
  MoverNode c(thread, secret, c_memory.path);
  EXPECT_EQ(fetch(c, b, 3, 12, 2).why, "");
  EXPECT_THAT(c.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 12, 2, 8, false}));
  EXPECT_EQ(files::read_text(c.generation(3, false, 0) / "model.buffer"), three_mib);
  // Again it is no work: nobody needs to be there.
  b.mover.reset();
  std::optional<Mover::Fetched> again;
  c.mover->fetch({{3, {{"127.0.0.1"}, 1}}}, 12, 2, [&](const Mover::Fetched& what) { again = what; });
  ASSERT_TRUE(soon([&] { return again.has_value(); }));
  EXPECT_EQ(again->why, "");
}

TEST_F(MoverTest, KeepsTwoGenerationsOfACopy) {
  a.mover->begin({2, b.place(), {3}, -1, 0});
  for (int step = 1; step <= 4; ++step) {
    sealed_by_rank(a, 3, step % 2, step, 2, "state " + std::to_string(step));
    a.mover->copy(3);
    ASSERT_TRUE(soon([&] {
      const auto there = b.mover->sealed();
      return std::any_of(there.begin(), there.end(), [&](const auto& s) { return s.step == step; });
    }));
  }
  EXPECT_THAT(b.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 3, 2, 8, true},
                                                      control::SealedState{3, 4, 2, 8, true}));
}

TEST_F(MoverTest, CopiesTheStateThatAnAttemptBeganWithAndNothingOlder) {
  sealed_by_rank(a, 3, 0, 10, 1, "the state of all ranks");
  sealed_by_rank(a, 3, 1, 11, 1, "a state that not all ranks came to");
  a.mover->begin({2, b.place(), {3}, 10, 1});
  a.mover->copy(3);
  ASSERT_TRUE(soon([&] { return !b.mover->sealed().empty(); }));
  EXPECT_THAT(b.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 10, 1, 8, true}));
}

TEST_F(MoverTest, MakesRoomForTheNextAttempt) {
  for (const int rank : {3, 5}) {
    sealed_by_rank(a, rank, 0, 10, 1, "the state of all ranks");
    sealed_by_rank(a, rank, 1, 11, 1, "a state that not all ranks came to");
  }
  a.mover->begin({2, {}, {3}, 10, 1});
  ASSERT_TRUE(soon([&] { return !fs::exists(a.generation(5, false, 1) / "model.buffer"); }));
  EXPECT_THAT(a.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 10, 1, 8, false},
                                                      control::SealedState{3, 11, 1, 8, false},
                                                      control::SealedState{5, 10, 1, 8, false}));
}

TEST_F(MoverTest, ADamagedStateIsNotSealedElsewhere) {
  const Seal seal = sealed_by_rank(a, 3, 0, 12, 2, "what it was");
  std::ofstream(a.generation(3, false, 0) / "model.buffer", std::ios::binary) << "what it iz!";
  EXPECT_THAT(fetch(b, a, 3, 12, 2).why, HasSubstr("the checksum of model does not hold"));
  EXPECT_THAT(b.mover->sealed(), IsEmpty());
  std::ofstream(a.generation(3, false, 0) / "model.buffer", std::ios::binary) << "short";
  EXPECT_NE(fetch(b, a, 3, 12, 2).why, "");
  EXPECT_THAT(b.mover->sealed(), IsEmpty());
}

TEST_F(MoverTest, SaysWhatItCannotFetch) {
  const auto answer = fetch(b, a, 3, 12, 2);
  EXPECT_EQ(answer.rank, 3);
  EXPECT_THAT(answer.why, HasSubstr("it is not here"));
}

TEST_F(MoverTest, ACopyFromANodeThatIsLostDoesNotHoldUpTheNextOne) {
  // It has begun to send, and says no more.
  const std::string content = "never sent";
  const Seal seal{12, 2, 8, {{"model", std::ssize(content), crc32_of(0, content.data(), content.size())}}};
  control::BulkStream lost(control::connect_to({"127.0.0.1"}, b.mover->port()), control::Session::End::client,
                           secret);
  lost.send(nlohmann::json{
      {"m", "put"}, {"rank", 3}, {"seal", to_text(seal)}, {"base_step", -1}, {"base_attempt", 0}}
                .dump());
  EXPECT_THAT(lost.receive(), HasSubstr("true"));
  b.mover->begin({3, {}, {}, -1, 0});  // nor does it hold up this
  sealed_by_rank(a, 3, 0, 13, 3, "from another node");
  a.mover->begin({3, b.place(), {3}, -1, 0});
  a.mover->copy(3);
  ASSERT_TRUE(soon([&] { return !b.mover->sealed().empty(); }));
  EXPECT_THAT(b.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 13, 3, 8, true}));
}

TEST_F(MoverTest, StrangersGetNothing) {
  sealed_by_rank(a, 3, 0, 12, 2, "what others must not have");
  Folder memory;
  MoverNode stranger(thread, control::random_key(), memory.path);
  EXPECT_NE(fetch(stranger, a, 3, 12, 2).why, "");
  EXPECT_THAT(stranger.mover->sealed(), IsEmpty());
  // Nor does a rank, which has a key of its own.
  control::test::RawSocket rank{control::TcpAddress{"", a.mover->port()}};
  control::Session session(control::Session::End::client, control::rank_key(secret, {3, 2}),
                           control::RankId{3, 2});
  std::optional<std::string> answer;
  std::string why;
  session.handshake(rank.line(), answer, why);
  rank.send(answer.value_or("") + "\n");
  session.handshake(rank.line(), answer, why);
  rank.send(session.seal(R"({"m":"get","rank":3,"step":12,"attempt":2})") + "\n");
  EXPECT_TRUE(rank.closed_within(Millis(10000)));
}

TEST_F(MoverTest, OneThatReplacesAnotherKnowsWhatThatOneKnew) {
  a.mover->begin({2, b.place(), {3}, -1, 0});
  const int port = a.mover->port();
  a.mover.reset();
  ASSERT_TRUE(soon([&] {  // its thread has ended
    try {
      control::connect_to({"127.0.0.1"}, port);
      return false;
    } catch (const Error&) {
      return true;
    }
  }));
  Mover next(thread.loop, a.folder / "buffers", secret);
  EXPECT_EQ(next.port(), port);
  sealed_by_rank(a, 3, 0, 12, 2, "sealed under the new one");
  next.copy(3);
  EXPECT_TRUE(soon([&] { return !b.mover->sealed().empty(); }));
}

TEST_F(MoverTest, WhatAnotherRunHasLeftIsRemoved) {
  sealed_by_rank(a, 3, 0, 12, 2, "of a run in a folder of the same name");
  a.mover.reset();
  const Mover other(thread.loop, a.folder / "buffers", control::random_key());
  EXPECT_THAT(other.sealed(), IsEmpty());
}

TEST_F(MoverTest, SharesTheMemoryAmongRanksAndGenerations) {
  EXPECT_EQ(a.mover->share_of_rank(1, true) / 2, a.mover->share_of_rank(2, true));
  EXPECT_GT(a.mover->share_of_rank(1, false), a.mover->share_of_rank(1, true));
}

}  // namespace
}  // namespace holdfast::launcher
