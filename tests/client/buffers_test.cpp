// Snapshot buffers of the client for any program, in C and in Python.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <fstream>
#include <future>

#include "tests/client/client_fixture.hpp"

namespace holdfast::control {
namespace {

class BuffersTest : public ClientTest {
 protected:
  BuffersTest() {
    place.buffers = folder.path / "rank-00003";
    place.buffers_limit = 1 << 20;
  }
  std::filesystem::path generation(int number) const { return place.buffers / std::to_string(number); }
  std::string seal_of(int number) const { return files::read_text(generation(number) / "seal"); }
  bool is_sealed(int number) const { return files::is_there(generation(number) / "seal"); }
  /// As the next attempt, which starts from a state of attempt 5.
  void start_again(std::int64_t step, const std::string& level) {
    program.reset();
    place.attempt = 6;
    place.from.sealed_step = step;
    place.from.sealed_attempt = 5;
    place.from.sealed_level = level;
    connect_again();
  }
  void connect_again() {
    stop_agent();
    start_agent();
    connect();
  }
};

TEST_P(BuffersTest, AreSealedInTwoGenerationsAndTheAgentIsTold) {
  connect();
  EXPECT_EQ(program->ask("sealed"), "-1");
  EXPECT_EQ(program->ask("load model"), "none");
  EXPECT_EQ(program->ask("seal 11"), "0") << "nothing has been written";
  EXPECT_EQ(program->ask("buffer model 100003 a"), "ok");
  EXPECT_EQ(program->ask("buffer optim.0 5 b"), "ok");
  EXPECT_FALSE(is_sealed(0) || is_sealed(1));
  EXPECT_EQ(program->ask("seal 12"), "1");
  ASSERT_TRUE(until([this] { return agent->all<RankSealed>().size() == 1; }));
  EXPECT_EQ(all<RankSealed>()[0].step, 12);
  const int first = is_sealed(1) ? 1 : 0;
  EXPECT_EQ(seal_of(first),
            "holdfast seal 1\nstep 12\nattempt 5\nworld 4\nbuffer model 100003 b42af450\n"
            "buffer optim.0 5 0bdbfaa7\nend 7673b650\n");
  EXPECT_EQ(std::filesystem::file_size(generation(first) / "model.buffer"), 100003u);
  // While the next one is written, the first is whole.
  EXPECT_EQ(program->ask("buffer model 100003 c"), "ok");
  EXPECT_TRUE(is_sealed(first));
  EXPECT_EQ(program->ask("seal 13"), "0") << "one of the buffers is still the older one";
  EXPECT_EQ(program->ask("buffer optim.0 5 d"), "ok");
  EXPECT_EQ(program->ask("seal 13"), "1");
  EXPECT_TRUE(is_sealed(0) && is_sealed(1));
  // The third is written over the first.
  EXPECT_EQ(program->ask("buffer model 100003 e"), "ok");
  EXPECT_FALSE(is_sealed(first));
  EXPECT_TRUE(is_sealed(1 - first));
}

TEST_P(BuffersTest, ANewAgentHearsTheNewestSealAgain) {
  connect();
  EXPECT_EQ(program->ask("buffer model 10 a"), "ok");
  EXPECT_EQ(program->ask("seal 12"), "1");
  ASSERT_TRUE(until([this] { return !agent->all<RankSealed>().empty(); }));
  stop_agent();
  start_agent();
  ASSERT_TRUE(until([this] { return !agent->all<RankSealed>().empty(); }));
  EXPECT_EQ(all<RankSealed>()[0].step, 12);
}

TEST_P(BuffersTest, AreLoadedByTheNextAttempt) {
  connect();
  for (const char* step : {"12 a", "13 b"}) {
    program->ask(std::string("buffer model 100003 ") + step[3]);
    EXPECT_EQ(program->ask(std::string("seal ") + std::string(step, 2)), "1");
  }
  program->ask("buffer model 100003 x");  // and it dies
  EXPECT_EQ(is_sealed(0) + is_sealed(1), 1);
  start_again(13, "partner");
  EXPECT_EQ(program->ask("sealed"), "13");
  EXPECT_EQ(program->ask("load other"), "none");
  EXPECT_EQ(program->ask("load model"), "100003 bb");
  ASSERT_TRUE(until([this] { return !agent->all<RankRestored>().empty(); }));
  EXPECT_EQ(all<RankRestored>()[0].from.step, 13);
  EXPECT_EQ(all<RankRestored>()[0].from.level, "partner");
  // What it came from stays until there is a newer one.
  EXPECT_EQ(program->ask("buffer model 100003 c"), "ok");
  EXPECT_EQ(is_sealed(0) + is_sealed(1), 1);
  EXPECT_EQ(program->ask("load model"), "100003 bb");
}

TEST_P(BuffersTest, TheOlderOneIsKeptWhereAnAttemptStartsFromIt) {
  connect();
  for (const char* step : {"12 a", "13 b"}) {
    program->ask(std::string("buffer model 10 ") + step[3]);
    EXPECT_EQ(program->ask(std::string("seal ") + std::string(step, 2)), "1");
  }
  start_again(12, "local");
  EXPECT_EQ(program->ask("buffer model 10 c"), "ok");
  EXPECT_EQ(program->ask("load model"), "10 aa");
}

TEST_P(BuffersTest, ADamagedOneIsRefusedAndUnsealed) {
  connect();
  program->ask("buffer model 100003 a");
  EXPECT_EQ(program->ask("seal 12"), "1");
  const int sealed = is_sealed(1) ? 1 : 0;
  const auto file = generation(sealed) / "model.buffer";
  std::string bytes = files::read_text(file);
  bytes[50000] = 'b';
  std::ofstream(file, std::ios::binary) << bytes;
  start_again(12, "local");
  EXPECT_EQ(program->ask("load model"), "none");
  EXPECT_FALSE(is_sealed(sealed));
  EXPECT_TRUE(files::is_there(generation(sealed) / "damaged")) << "for the mover, which repairs it";
}

TEST_P(BuffersTest, ATornSealIsNone) {
  connect();
  program->ask("buffer model 10 a");
  EXPECT_EQ(program->ask("seal 12"), "1");
  const int sealed = is_sealed(1) ? 1 : 0;
  const std::string text = seal_of(sealed);
  files::replace_atomically(generation(sealed) / "seal", text.substr(0, text.size() - 4));
  start_again(12, "local");
  EXPECT_EQ(program->ask("load model"), "none");
}

TEST_P(BuffersTest, OneThatIsBeingCopiedIsWaitedForAndThatIsNoHang) {
  connect();
  for (const char* step : {"12", "13"}) {
    EXPECT_EQ(program->ask("buffer model 10 a"), "ok");
    EXPECT_EQ(program->ask(std::string("seal ") + step), "1");
  }
  program->tell("at 13 optimizer");
  const int older = seal_of(0).find("step 12") != std::string::npos ? 0 : 1;
  files::Fd copier = files::open(generation(older), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(copier.get(), LOCK_SH), 0);
  auto answer = std::async(std::launch::async, [this] { return program->ask("buffer model 10 b"); });
  // What is reported as a checkpoint would be learned as the time that a save takes.
  EXPECT_TRUE(until([this] { return agent->progress.phase == Phase::finishing; }));
  const auto moves = loop.call([this] { return agent->progress.moves; });
  EXPECT_TRUE(until([&] { return agent->progress.moves > moves + 1; })) << "it is not still";
  EXPECT_TRUE(is_sealed(older));
  copier.reset();
  EXPECT_EQ(answer.get(), "ok");
  EXPECT_FALSE(is_sealed(older));
  EXPECT_TRUE(until([this] { return agent->progress.phase == Phase::optimizer; }));
}

TEST_P(BuffersTest, ASealIsOverWhenItIsCopied) {
  place.buffers_copied = true;
  connect();
  program->tell("at 12 optimizer");
  EXPECT_EQ(program->ask("buffer model 10 a"), "ok");
  auto answer = std::async(std::launch::async, [this] { return program->ask("seal 12"); });
  EXPECT_TRUE(until([this] { return agent->progress.phase == Phase::finishing; })) << "and that is no hang";
  EXPECT_TRUE(until([this] { return !agent->all<RankSealed>().empty(); }));
  files::replace_atomically(place.buffers / "copied", "5 11\n");
  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "another step";
  files::replace_atomically(place.buffers / "copied", "5 12\n");
  EXPECT_EQ(answer.get(), "1");
  EXPECT_TRUE(until([this] { return agent->progress.phase == Phase::optimizer; }));
}

TEST_P(BuffersTest, WhereAnotherThreadWaitsTheProgramIsWhereItSays) {
  place.buffers_copied = true;
  connect();
  program->tell("at 12 optimizer");
  EXPECT_EQ(program->ask("buffer model 10 a"), "ok");
  program->tell("seal_aside 12");
  ASSERT_TRUE(until([this] { return !agent->all<RankSealed>().empty(); }));
  program->tell("at 13 checkpoint");
  const auto after = [this](int beats) {
    const int seen = loop.call([this] { return agent->beats; });
    ASSERT_TRUE(until([&] { return agent->beats >= seen + beats; }));
    EXPECT_EQ(loop.call([this] { return agent->progress.step; }), 13);
    EXPECT_EQ(loop.call([this] { return agent->progress.phase; }), Phase::checkpoint);
    EXPECT_EQ(loop.call([this] { return agent->progress.moves; }), 2) << "and nothing else begins";
  };
  after(3);
  files::replace_atomically(place.buffers / "copied", "5 12\n");
  EXPECT_EQ(program->ask("join"), "1");
  after(2);
}

TEST_P(BuffersTest, WhatDoesNotFitIsRefused) {
  connect();
  EXPECT_EQ(program->ask("buffer model 1048577 a"), "none");
  EXPECT_EQ(program->ask("buffer model 1048570 a"), "ok");
  EXPECT_EQ(program->ask("buffer more 7 a"), "none") << "both together";
  EXPECT_EQ(program->ask("buffer more 6 a"), "ok");
  for (const char* name : {"../x", ".hidden", "a/b"})
    EXPECT_EQ(program->ask(std::string("buffer ") + name + " 1 a"), "none") << name;
}

TEST_P(BuffersTest, OneThatHasNoRoomToGrowIsNotSealed) {
  connect();
  EXPECT_EQ(program->ask("buffer model 10 a"), "ok");
  const auto file = generation(files::is_there(generation(1)) ? 1 : 0) / "model.buffer";
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_EQ(program->ask("buffer model 20 b"), "none");
  EXPECT_EQ(program->ask("seal 12"), "0");
  EXPECT_EQ(program->ask("buffer model 10 c"), "none") << "the memory that it had is no file any more";
  std::filesystem::remove(file);
  EXPECT_EQ(program->ask("buffer model 10 d"), "ok");
  EXPECT_EQ(program->ask("seal 12"), "1");
  EXPECT_EQ(files::read_text(file), "dddddddddd");
}

TEST_P(BuffersTest, AFolderThatIsNotVisibleHereIsNotMade) {
  place.buffers = folder.path / "nowhere" / "rank-00003";  // in a container without checkpoint.local
  connect();
  EXPECT_EQ(program->ask("buffer model 10 a"), "none");
  EXPECT_FALSE(files::is_there(folder.path / "nowhere"));
}

TEST_P(BuffersTest, WithoutAnAgentOrMemoryThereAreNone) {
  start(false);
  EXPECT_EQ(program->ask("open"), "0");
  EXPECT_EQ(program->ask("buffer model 10 a"), "none");
  EXPECT_EQ(program->ask("seal 12"), "0");
  EXPECT_EQ(program->ask("sealed"), "-1");
  EXPECT_EQ(program->ask("load model"), "none");
  program.reset();
  place.buffers.clear();  // checkpoint.local is "none", or the agent is of an older release
  connect();
  EXPECT_EQ(program->ask("buffer model 10 a"), "none");
  EXPECT_EQ(program->ask("seal 12"), "0");
}

INSTANTIATE_TEST_SUITE_P(InBothLanguages, BuffersTest, testing::Values("C", "Python"),
                         [](const auto& at) { return at.param; });

}  // namespace
}  // namespace holdfast::control
