#include "launcher/agent/mover/mover.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "launcher/agent/mover/requests.hpp"
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

/// As a rank does.
Seal sealed_by_rank(const MoverNode& node, int rank, int generation, std::int64_t step, int attempt,
                    const std::string& content) {
  const fs::path at = node.generation(rank, false, generation);
  fs::create_directories(at);
  std::ofstream(at / "model.buffer", std::ios::binary) << content;
  const Seal seal{step,
                  attempt,
                  8,
                  {{"model", std::ssize(content), snapshot::crc32_of(0, content.data(), content.size())}}};
  files::replace_atomically(at / "seal", to_text(seal));
  return seal;
}

/// In place of another node's mover: it hears what is asked, and answers when the test says so.
class StandIn {
 public:
  struct Asked {
    control::BulkStream stream;
    MoverRequest request;
    int rank() const {
      return std::visit([](const auto& what) { return what.rank; }, request);
    }
    std::int64_t step() const { return std::get<PutRequest>(request).seal.step; }
    /// Takes the buffers, and drops them.
    void take_copy() {
      stream.send(to_text(MoverConsent{}));
      const files::Fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
      for (const auto& buffer : std::get<PutRequest>(request).seal.buffers)
        stream.receive_bytes(nowhere.get(), buffer.bytes, [](auto) {});
      stream.send(to_text(MoverConsent{}));
    }
  };

  explicit StandIn(const control::Key& secret) : key_(mover_key(secret)), listener_(control::listen_on(0)) {}
  Mover::Place place() const { return {{"127.0.0.1"}, control::port_of(listener_.get())}; }
  /// Ends the next connection before its handshake.
  void turn_away() const {
    pollfd waiting{listener_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, patience_ms), 1);
    files::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  /// The next request; null: none came.
  std::unique_ptr<Asked> next() {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, patience_ms) <= 0) return nullptr;
    control::BulkStream stream(files::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                               control::Session::End::server, key_);
    auto request = request_of(stream.receive());
    return std::unique_ptr<Asked>(new Asked{std::move(stream), std::move(request)});
  }

 private:
  static constexpr int patience_ms = 10000;
  control::Key key_;
  files::Fd listener_;
};

Mover::Fetched fetched(LoopThread& thread, MoverNode& node, const MoverNode& from, int rank,
                       std::int64_t step, int attempt) {
  std::optional<Mover::Fetched> answer;
  node.mover->fetch({{rank, from.place()}}, step, attempt,
                    [&](const Mover::Fetched& what) { answer = what; });
  EXPECT_TRUE(thread.until([&] { return answer.has_value(); }));
  return answer.value_or(Mover::Fetched{});
}

/// The first of two neighbours.
int two_free_ports() {
  for (;;) {
    const int first = control::test::free_port();
    try {
      if (control::listen_on(first) && control::listen_on(first + 1)) return first;
    } catch (const Error&) {  // somebody has it
    }
  }
}

/// Runs `body` in a child, where `folder` has a mebibyte of memory.
void with_little_memory(const fs::path& folder, const std::function<void()>& body) {
  constexpr int not_allowed = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0)
      ::_exit(not_allowed);
    body();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == not_allowed) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(status, 0);
}

class MoverTest : public testing::Test {
 protected:
  MoverTest() {
    fs::permissions(a_memory.path, fs::perms::owner_all);
    fs::permissions(b_memory.path, fs::perms::owner_all);
  }
  bool soon(const std::function<bool()>& there) { return thread.until(there); }
  static bool is_dealt_with(const MoverNode& node, int rank, const std::string& what) {
    const fs::path file = node.folder / "buffers" / folder_name(rank, false) / "copied";
    return fs::exists(file) && files::read_text(file) == what;
  }
  Mover::Fetched fetch(MoverNode& node, const MoverNode& from, int rank, std::int64_t step, int attempt) {
    return fetched(thread, node, from, rank, step, attempt);
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
  EXPECT_NE(a.mover->copies_off(), "");
  a.mover->begin({3, b.place(), {3}, -1, 0});
  EXPECT_EQ(a.mover->copies_off(), "") << "another partner";
}

TEST_F(MoverTest, AConnectionThatStrangersCrowdOutIsTriedAgain) {
  StandIn partner(secret);
  sealed_by_rank(a, 3, 0, 12, 2, "x");
  a.mover->begin({2, partner.place(), {3}, -1, 0});
  a.mover->copy(3);
  partner.turn_away(), partner.turn_away();
  const auto asked = partner.next();
  ASSERT_TRUE(asked);
  asked->take_copy();
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, 3, "2 12\n"); }));
  EXPECT_EQ(a.mover->copies_off(), "");
}

TEST_F(MoverTest, SilentConnectionsStopNoCopy) {
  std::vector<std::unique_ptr<control::test::RawSocket>> silent;
  for (int i = 0; i < 64; ++i)
    silent.push_back(std::make_unique<control::test::RawSocket>(control::TcpAddress{"", b.mover->port()}));
  sealed_by_rank(a, 3, 0, 12, 2, "x");
  a.mover->begin({2, b.place(), {3}, -1, 0});
  a.mover->copy(3);
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, 3, "2 12\n"); }));
  EXPECT_EQ(a.mover->copies_off(), "");
  EXPECT_EQ(b.mover->sealed().size(), 1u);
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

/// The rank has found one of two buffers damaged, in the generation that is not the first to be written over.
TEST_F(MoverTest, OfADamagedStateOnlyWhatIsDamagedIsFetched) {
  Seal two = sealed_by_rank(a, 3, 1, 12, 2, three_mib);
  two.buffers.push_back({"optim", two.buffers[0].bytes, two.buffers[0].crc});
  const fs::path whole = a.generation(3, false, 1), at = b.generation(3, false, 1);
  fs::create_directories(at);
  for (const auto& folder : {whole, at}) {
    std::ofstream(folder / "model.buffer") << three_mib;
    std::ofstream(folder / "optim.buffer") << three_mib;
  }
  files::replace_atomically(whole / "seal", to_text(two));
  files::replace_atomically(at / "damaged", to_text(two));
  std::string flipped = three_mib;
  flipped[1 << 20] = 'z';
  std::ofstream(at / "optim.buffer") << flipped;
  fs::remove(whole / "model.buffer");  // nobody asks for it
  EXPECT_EQ(fetch(b, a, 3, 12, 2).why, "");
  EXPECT_EQ(read_seal(at), two);
  for (const char* name : {"model.buffer", "optim.buffer"})
    EXPECT_TRUE(files::read_text(at / name) == three_mib) << name;
  EXPECT_FALSE(files::is_there(at / "damaged"));
  EXPECT_FALSE(files::is_there(b.generation(3, false, 0)));
}

TEST_F(MoverTest, AnotherStateOfTheSameNameRepairsNothing) {
  sealed_by_rank(a, 3, 0, 12, 2, three_mib);
  const Seal other = sealed_by_rank(b, 3, 0, 12, 2, "other");
  fs::rename(b.generation(3, false, 0) / "seal", b.generation(3, false, 0) / "damaged");
  EXPECT_THAT(fetch(b, a, 3, 12, 2).why, HasSubstr("another state"));
  EXPECT_FALSE(read_seal(b.generation(3, false, 0)));
}

TEST_F(MoverTest, SaysWhatItCannotFetch) {
  const auto answer = fetch(b, a, 3, 12, 2);
  EXPECT_EQ(answer.rank, 3);
  EXPECT_THAT(answer.why, HasSubstr("it is not here"));
}

TEST(MoverInLittleMemory, WhatHasNoRoomIsSaidAndLeavesNothingBehind) {
  const Folder a_memory, b_memory;
  with_little_memory(b_memory.path, [&] {
    const control::Key secret = control::random_key();
    LoopThread thread;
    MoverNode a{thread, secret, a_memory.path}, b{thread, secret, b_memory.path};
    Seal two = sealed_by_rank(a, 3, 0, 12, 2, std::string(600 << 10, 'x'));
    two.buffers.push_back({"optim", 600 << 10, two.buffers[0].crc});
    const fs::path at = a.generation(3, false, 0);
    fs::copy_file(at / "model.buffer", at / "optim.buffer");
    files::replace_atomically(at / "seal", to_text(two));
    const auto large = fetched(thread, b, a, 3, 12, 2);  // there is room for one of them
    EXPECT_EQ(large.rank, 3);
    EXPECT_TRUE(large.no_room);
    EXPECT_THAT(large.why, HasSubstr("No space left on device"));
    sealed_by_rank(a, 4, 0, 12, 2, std::string(900 << 10, 'y'));
    EXPECT_EQ(fetched(thread, b, a, 4, 12, 2).why, "") << "all of the memory is there again";
    EXPECT_FALSE(fetched(thread, b, a, 5, 12, 2).no_room) << "that is the other node's fault";
  });
}

/// Else it would wait for a copy that is not made.
TEST(MoverInLittleMemory, ARankIsToldWithoutNewMemory) {
  const Folder a_memory;
  with_little_memory(a_memory.path, [&] {
    LoopThread thread;
    MoverNode a{thread, control::random_key(), a_memory.path};
    a.mover->begin({2, {}, {3}, -1, 0});
    const fs::path file = a.folder / "buffers" / folder_name(3, false) / "copied";
    ASSERT_TRUE(thread.until([&] { return fs::exists(file); }));
    sealed_by_rank(a, 3, 0, 12, 2, "x");
    std::ofstream(a_memory.path / "others", std::ios::binary) << std::string(2 << 20, 'z');
    a.mover->copy(3);
    EXPECT_TRUE(thread.until([&] { return fs::exists(file) && files::read_text(file) == "2 12\n"; }));
  });
}

TEST_F(MoverTest, ACopyFromANodeThatIsLostDoesNotHoldUpTheNextOne) {
  // It has begun to send, and says no more.
  const std::string content = "never sent";
  const Seal seal{
      12, 2, 8, {{"model", std::ssize(content), snapshot::crc32_of(0, content.data(), content.size())}}};
  control::BulkStream lost(control::connect_to({"127.0.0.1"}, b.mover->port()), control::Session::End::client,
                           mover_key(secret));
  lost.send(to_text(PutRequest{3, seal, -1, 0}));
  EXPECT_EQ(consent_of(lost.receive()), MoverConsent{});
  b.mover->begin({3, {}, {}, -1, 0});  // nor does it hold up this
  sealed_by_rank(a, 3, 0, 13, 3, "from another node");
  a.mover->begin({3, b.place(), {3}, -1, 0});
  a.mover->copy(3);
  ASSERT_TRUE(soon([&] { return !b.mover->sealed().empty(); }));
  EXPECT_THAT(b.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 13, 3, 8, true}));
}

TEST_F(MoverTest, TheCopyOfARankDoesNotWaitForThatOfAnother) {
  StandIn partner(secret);
  for (const int rank : {3, 4}) sealed_by_rank(a, rank, 0, 12, 2, three_mib);
  a.mover->begin({2, partner.place(), {3, 4}, -1, 0});
  for (const int rank : {3, 4}) a.mover->copy(rank);
  const auto first = partner.next();
  ASSERT_TRUE(first);
  const auto second = partner.next();
  ASSERT_TRUE(second) << "the first one is not answered";
  ASSERT_EQ(first->rank() + second->rank(), 7);
  second->take_copy();
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, second->rank(), "2 12\n"); }));
  EXPECT_FALSE(is_dealt_with(a, first->rank(), "2 12\n"));
  first->take_copy();
  EXPECT_TRUE(soon([&] { return is_dealt_with(a, first->rank(), "2 12\n"); }));
}

TEST_F(MoverTest, StatesOfARankAreCopiedOneAfterAnother) {
  StandIn partner(secret);
  sealed_by_rank(a, 3, 0, 12, 2, "the first state");
  a.mover->begin({2, partner.place(), {3, 4}, -1, 0});
  a.mover->copy(3);
  const auto first = partner.next();
  ASSERT_TRUE(first);
  sealed_by_rank(a, 3, 1, 13, 2, "the second state");
  a.mover->copy(3);
  for (int step = 1; step <= 4; ++step) {  // that of another rank goes on meanwhile, and nothing else comes
    sealed_by_rank(a, 4, step % 2, step, 2, "other");
    a.mover->copy(4);
    const auto other = partner.next();
    ASSERT_TRUE(other);
    ASSERT_EQ(other->rank(), 4) << "two copies of rank 3 are being made";
    other->take_copy();
    ASSERT_TRUE(soon([&] { return is_dealt_with(a, 4, "2 " + std::to_string(step) + "\n"); }));
  }
  first->take_copy();
  const auto second = partner.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->rank(), 3);
  EXPECT_EQ(second->step(), 13);
}

TEST_F(MoverTest, MoreRanksThanThreadsAreCopied) {
  Mover::Attempt attempt{2, b.place(), {}, -1, 0};
  for (int rank = 0; rank < 19; ++rank) {
    attempt.ranks.push_back(rank);
    sealed_by_rank(a, rank, 0, 12, 2, "state of " + std::to_string(rank));
  }
  a.mover->begin(attempt);
  for (const int rank : attempt.ranks) a.mover->copy(rank);
  EXPECT_TRUE(soon([&] { return b.mover->sealed().size() == 19; }));
}

TEST_F(MoverTest, AnotherAttemptEndsAllCopiesOfTheOneBefore) {
  StandIn lost(secret);
  for (const int rank : {3, 4}) sealed_by_rank(a, rank, 0, 12, 2, "of both attempts");
  a.mover->begin({2, lost.place(), {3, 4}, -1, 0});
  for (const int rank : {3, 4}) a.mover->copy(rank);
  const auto first = lost.next(), second = lost.next();
  ASSERT_TRUE(first && second);
  a.mover->begin({3, b.place(), {3, 4}, 12, 2});
  for (const int rank : {3, 4}) a.mover->copy(rank);
  ASSERT_TRUE(soon([&] { return b.mover->sealed().size() == 2; }));
}

TEST_F(MoverTest, FetchesAllRanksAtOnceAndAnswersOnce) {
  StandIn other(secret);
  std::vector<Mover::Fetched> answers;
  const auto fetch_both = [&](const Mover::Place& from) {
    b.mover->fetch({{3, from}, {4, from}}, 12, 2, [&](const auto& what) { answers.push_back(what); });
  };
  fetch_both(other.place());
  const auto first = other.next(), second = other.next();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second) << "the first one is not answered";
  first->stream.send(refusal_text("not today"));
  second->stream.send(refusal_text("not here"));
  ASSERT_TRUE(soon([&] { return answers.size() == 1; }));
  EXPECT_TRUE(answers[0].rank == 3 || answers[0].rank == 4);
  EXPECT_THAT(answers[0].why, HasSubstr("not "));
  for (const int rank : {3, 4}) sealed_by_rank(a, rank, 0, 12, 2, three_mib);
  fetch_both(a.place());
  ASSERT_TRUE(soon([&] { return answers.size() == 2; }));
  EXPECT_EQ(answers[1].why, "");
  EXPECT_EQ(b.mover->sealed().size(), 2u);
  b.mover->fetch({}, 12, 2, [&](const auto& what) { answers.push_back(what); });
  ASSERT_TRUE(soon([&] { return answers.size() == 3; })) << "there is nothing to fetch";
}

struct GivenUpFetch : MoverTest {
  StandIn other{secret};
  std::vector<Mover::Fetched> answers;
  std::unique_ptr<StandIn::Asked> asked;
  /// Node b fetches what it will not get: the other node says no more behind the seal.
  GivenUpFetch() {
    b.mover->fetch({{3, other.place()}}, 12, 2, [&](const auto& what) { answers.push_back(what); });
    asked = other.next();
    if (!asked) throw std::runtime_error("nothing was asked");
    const Seal seal{12, 2, 8, {{"model", 1000, 0}}};
    asked->stream.send(to_text(MoverConsent{.here = false, .seal = seal}));
    if (!soon([&] { return fs::exists(buffer()); })) throw std::runtime_error("the seal is not taken");
  }
  fs::path buffer() const { return b.generation(3, false, 0) / "model.buffer"; }
  /// Why no word comes: the other end has closed the connection, or it is silent.
  std::string why_silent() {
    try {
      asked->stream.receive();
    } catch (const Error& error) {
      return error.why();
    }
    return "";
  }
};

TEST_F(GivenUpFetch, AnotherOneTakesItsPlaceAtOnce) {
  sealed_by_rank(a, 3, 0, 11, 1, three_mib);
  b.mover->fetch({{3, a.place()}}, 11, 1, [&](const auto& what) { answers.push_back(what); });
  EXPECT_EQ(why_silent(), "the other end is gone");
  ASSERT_TRUE(soon([&] { return !answers.empty(); }));
  EXPECT_EQ(answers.size(), 1u) << "nobody asks for the first any more";
  EXPECT_EQ(answers[0].why, "");
  EXPECT_THAT(b.mover->sealed(), UnorderedElementsAre(control::SealedState{3, 11, 1, 8, false}));
}

TEST_F(GivenUpFetch, NothingIsLeftOfIt) {
  b.mover->give_up_fetches();
  EXPECT_EQ(why_silent(), "the other end is gone");
  EXPECT_TRUE(soon([&] { return !fs::exists(buffer()); }));
  thread.settle();
  EXPECT_THAT(answers, IsEmpty());
}

TEST_F(GivenUpFetch, TheStartOfAnAttemptGivesItUp) {
  b.mover->begin({3, {}, {4}, -1, 0});
  EXPECT_EQ(why_silent(), "the other end is gone");
  EXPECT_TRUE(soon([&] { return !fs::exists(buffer()); }));
  thread.settle();
  EXPECT_THAT(answers, IsEmpty());
}

TEST_F(GivenUpFetch, TheSameAgainGoesOn) {
  std::vector<Mover::Fetched> of_next_leader;
  b.mover->fetch({{3, other.place()}}, 12, 2, [&](const auto& what) { of_next_leader.push_back(what); });
  asked->stream.send_bytes(files::Fd(::open("/dev/zero", O_RDONLY | O_CLOEXEC)).get(), 1000);
  const auto again = other.next();  // behind the first: those bytes were not what the seal says
  ASSERT_TRUE(again);
  ASSERT_TRUE(soon([&] { return answers.size() == 1; }));
  EXPECT_THAT(answers[0].why, HasSubstr("the checksum of model does not hold"));
  again->stream.send(refusal_text("not here"));
  EXPECT_TRUE(soon([&] { return of_next_leader.size() == 1; }));
}

/// The states of the others may be large.
TEST_F(MoverTest, TheFirstFailureOfAFetchIsSaidAtOnce) {
  StandIn other(secret);
  std::vector<Mover::Fetched> answers;
  b.mover->fetch({{3, other.place()}, {4, other.place()}}, 12, 2,
                 [&](const auto& what) { answers.push_back(what); });
  const auto first = other.next(), second = other.next();
  ASSERT_TRUE(first && second);
  first->stream.send(refusal_text("not here"));
  ASSERT_TRUE(soon([&] { return answers.size() == 1; })) << "the second one has not been answered";
  EXPECT_EQ(answers[0].rank, first->rank());
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

/// A firewall lets the ports of agents through, and no others.
TEST_F(MoverTest, ListensOnThePortsThatItIsGiven) {
  const int first = two_free_ports();
  Folder c_memory, d_memory, e_memory;
  const Mover one(thread.loop, c_memory.path / "buffers", secret, {first + 1, first});
  EXPECT_EQ(one.port(), first + 1);
  const Mover two(thread.loop, d_memory.path / "buffers", control::random_key(), {first + 1, first});
  EXPECT_EQ(two.port(), first) << "of another run on the same node";
  const Mover three(thread.loop, e_memory.path / "buffers", control::random_key(), {first + 1, first});
  EXPECT_GT(three.port(), 0) << "better than none";
}

TEST_F(MoverTest, IsNotTakenForAnAgent) {
  const int first = two_free_ports();
  Folder c_memory;
  const Mover mover(thread.loop, c_memory.path / "buffers", secret, {first});
  ASSERT_EQ(mover.port(), first);
  std::optional<control::Listener> agent;
  std::vector<control::ChannelPtr> accepted;
  control::ChannelPtr looking;
  bool found = false;
  std::string why;
  const auto look = [&] {
    thread.call([&] {
      looking = control::dial(thread.loop, control::TcpAddress{"127.0.0.1", first, 2}, secret, Millis(5000),
                              {[&] { found = true; }, nullptr, [&](const std::string& text) { why = text; }});
    });
    ASSERT_TRUE(soon([&] { return found || !why.empty(); }));
  };
  look();
  EXPECT_FALSE(found);
  EXPECT_THAT(why, HasSubstr("what listens there is no agent of this run"));
  thread.call([&] {
    agent.emplace(thread.loop, control::TcpAddress{"", first + 1}, secret,
                  [&](control::ChannelPtr guest) { accepted.push_back(std::move(guest)); });
  });
  why.clear();
  look();
  EXPECT_TRUE(found) << why;
  thread.call([&] { looking.reset(), accepted.clear(), agent.reset(); });
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

TEST(MoverInLittleMemory, KnowsHowMuchMemoryThereIs) {
  const Folder memory;
  with_little_memory(memory.path, [&] {
    LoopThread thread;
    const MoverNode node{thread, control::random_key(), memory.path};
    EXPECT_EQ(node.mover->memory_bytes(), 1 << 20);
  });
}

}  // namespace
}  // namespace holdfast::launcher
