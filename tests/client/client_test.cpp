// The client for any program, in C and in Python: a process that does what it is told, and the production's
// connection, handshake and messages at the other end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "src/base/clock.hpp"
#include "src/base/env.hpp"
#include "src/base/files.hpp"
#include "src/base/rank_env.hpp"
#include "src/base/subprocess.hpp"
#include "src/control/message.hpp"
#include "src/control/session.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::control {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// What an agent hears of a rank; what is no message of a rank is a failure of the test.
struct HearingAgent {
  HearingAgent(RealLoop& loop, const Address& address, const Key& secret)
      : listener(loop, address, secret, [this](ChannelPtr accepted) {
          channel = std::move(accepted);
          greeted = false;
          channel->handle({nullptr, [this](std::string_view text) { take(text); },
                           [this](const std::string&) { ++gone; }});
        }) {}
  void take(std::string_view text) {
    std::string why;
    if (!greeted) {
      const auto hello = decode<Hello>(text, why);
      ASSERT_TRUE(hello) << why;
      greeted = true;
      return hellos.push_back(*hello);
    }
    const auto message = decode<RankToAgent>(text, why);
    ASSERT_TRUE(message) << why << ": " << text;
    if (const auto* now = std::get_if<RankProgress>(&*message)) {
      progress = *now;
      ++beats;
    }
    heard.push_back(*message);
  }
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& message : heard)
      if (const auto* m = std::get_if<T>(&message)) out.push_back(*m);
    return out;
  }
  ChannelPtr channel;
  bool greeted = false;
  std::vector<Hello> hellos;
  std::vector<RankToAgent> heard;
  RankProgress progress;
  int beats = 0, gone = 0;
  Listener listener;
};

/// A process that carries out one call for each line.
class Program {
 public:
  Program(std::vector<std::string> argv, const std::vector<std::string>& environment) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::vector<char*> arguments, variables;
    for (auto& argument : argv) arguments.push_back(argument.data());
    auto all = environment;
    for (auto& variable : all) variables.push_back(variable.data());
    arguments.push_back(nullptr), variables.push_back(nullptr);
    EXPECT_EQ(::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), variables.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    fd_ = ends[0];
  }
  ~Program() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), end();
    ::close(fd_);
  }
  std::string ask(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    std::string answer;
    for (char c = 0; ::read(fd_, &c, 1) == 1 && c != '\n';) answer += c;
    return answer;
  }
  void tell(const std::string& line) { EXPECT_EQ(ask(line), "ok") << line; }
  int exit_with(int code) {
    const std::string text = "exit " + std::to_string(code) + "\n";
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    return end();
  }
  int end() {
    int status = -1;
    EXPECT_EQ(::waitpid(std::exchange(pid_, 0), &status, 0) > 0, true);
    return exit_status(status);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int fd_ = -1;
};

class ClientTest : public testing::TestWithParam<std::string> {
 protected:
  ClientTest() {
    place.rank = 3;
    place.world = 4;
    place.term = 2;
    place.attempt = 5;
    place.node = "dgx001";
    place.run_dir = folder.path;
    place.agent_socket = folder.path / "agent.sock";
    place.key_file = folder.path / "key";
    place.durable_steps = {300, 200};
    start_agent();
  }
  ~ClientTest() override {
    program.reset();
    stop_agent();
    loop.end();
  }
  void start_agent() {
    loop.call([this] { agent = std::make_unique<HearingAgent>(loop.loop, place.agent_socket, secret); });
  }
  void stop_agent() {
    loop.call([this] { agent.reset(); });
  }
  void start(bool supervised = true) {
    files::replace_atomically(place.key_file, to_hex(rank_key(secret, {place.rank, place.attempt})) + "\n",
                              files::for_owner);
    auto environment = env::without({"HOLDFAST_", "PYTHONPATH"});
    if (supervised)
      for (auto& variable : to_variables(place)) environment.push_back(variable);
    environment.push_back("PYTHONPATH=" HOLDFAST_SOURCE_DIR "/client/python");
    environment.push_back("PYTHONDONTWRITEBYTECODE=1");
    const std::vector<std::string> argv =
        GetParam() == "C"
            ? std::vector<std::string>{CLIENT_DRIVER}
            : std::vector<std::string>{"python3", HOLDFAST_SOURCE_DIR "/tests/client/driver.py"};
    program = std::make_unique<Program>(argv, environment);
  }
  void connect() {
    start();
    ASSERT_EQ(program->ask("open"), "1");
    ASSERT_TRUE(until([this] { return agent->beats > 0; }));
  }
  bool until(const std::function<bool()>& there) { return loop.until(there); }
  void say(const Message& message) {
    loop.call([&] { agent->channel->send(encode(message)); });
  }
  template <class T>
  std::vector<T> all() {
    return loop.call([this] { return agent->all<T>(); });
  }
  /// Asks until the answer is this one, as long as the test has time.
  bool answers(const std::string& question, const std::string& wanted) {
    return until([&] { return asked_outside(question) == wanted; });
  }
  std::string asked_outside(const std::string& question) { return program->ask(question); }

  test::Folder folder;
  const Key secret = random_key();
  RankEnv place;
  std::unique_ptr<HearingAgent> agent;
  test::LoopThread loop;
  std::unique_ptr<Program> program;
};

TEST_P(ClientTest, SaysWhoItIsWhereItIsAndWhatItMeasures) {
  connect();
  loop.call([this] {
    ASSERT_EQ(agent->hellos.size(), 1u);
    const Hello& hello = agent->hellos[0];
    EXPECT_EQ(hello.role, Hello::Role::rank);
    EXPECT_EQ(hello.node, "dgx001");
    EXPECT_EQ(hello.rank, 3);
    EXPECT_EQ(hello.attempt, 5);
    EXPECT_EQ(hello.term, 2);
    EXPECT_EQ(hello.pid, program->pid());
    EXPECT_EQ(agent->channel->proved_rank(), (RankId{3, 5}));
    EXPECT_EQ(agent->progress.step, -1);
    EXPECT_EQ(agent->progress.phase, Phase::starting);
  });
  EXPECT_EQ(program->ask("newest"), "300");
  program->tell("restored 17 shared");
  program->tell("at 17 backward");
  program->tell("at 18 optimizer");
  program->tell("metrics 2.5 4096 0.25");
  EXPECT_TRUE(until([this] {
    return agent->progress.step == 18 && agent->progress.phase == Phase::optimizer &&
           agent->progress.moves == 2 && agent->progress.compute_us == 250000 &&
           !agent->all<RankMetrics>().empty();
  }));
  const auto restored = all<RankRestored>();
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_EQ(restored[0].from.step, 17);
  EXPECT_EQ(restored[0].from.level, "shared");
  const auto metrics = all<RankMetrics>();
  ASSERT_EQ(metrics.size(), 1u) << "said once";
  EXPECT_EQ(metrics[0].step, 18);
  EXPECT_EQ(metrics[0].loss, 2.5);
  EXPECT_EQ(metrics[0].tokens, 4096);
  program->tell("metrics nan 8192 0");
  EXPECT_TRUE(until([this] { return agent->all<RankMetrics>().size() == 2; }));
  EXPECT_TRUE(std::isnan(all<RankMetrics>()[1].loss));
}

TEST_P(ClientTest, AProgramThatJustStepsHasTheStateOfItsFirstStep) {
  connect();
  program->tell("at -1 data");
  program->tell("at 40 forward");
  program->tell("at 41 forward");
  ASSERT_TRUE(until([this] { return !agent->all<RankRestored>().empty(); }));
  EXPECT_EQ(all<RankRestored>()[0].from.step, 40);
  EXPECT_EQ(all<RankRestored>()[0].from.level, "shared");
}

// --- snapshot buffers ---

class BuffersTest : public ClientTest {
 protected:
  BuffersTest() {
    place.buffers = folder.path / "rank-00003";
    place.buffers_limit = 1 << 20;
  }
  std::filesystem::path generation(int number) const { return place.buffers / std::to_string(number); }
  std::string seal_of(int number) const { return files::read_text(generation(number) / "seal"); }
  bool is_sealed(int number) const { return files::is_there(generation(number) / "seal"); }
  /// As the next attempt, which starts from this state.
  void start_again(const std::string& sealed) {
    program.reset();
    place.attempt = 6;
    place.sealed = sealed;
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
  start_again("13 5 partner");
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
  start_again("12 5 local");
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
  start_again("12 5 local");
  EXPECT_EQ(program->ask("load model"), "none");
  EXPECT_FALSE(is_sealed(sealed));
}

TEST_P(BuffersTest, ATornSealIsNone) {
  connect();
  program->ask("buffer model 10 a");
  EXPECT_EQ(program->ask("seal 12"), "1");
  const int sealed = is_sealed(1) ? 1 : 0;
  const std::string text = seal_of(sealed);
  files::replace_atomically(generation(sealed) / "seal", text.substr(0, text.size() - 4));
  start_again("12 5 local");
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

TEST_P(ClientTest, VotesAndHearsTheOutcome) {
  connect();
  program->tell("vote 20 3 1048576 /shared/\"a b\"/step-20");
  program->tell("vote_failed 30 no space left");
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  const auto votes = all<RankVote>();
  EXPECT_TRUE(votes[0].ok);
  EXPECT_EQ(votes[0].step, 20);
  const json payload = json::parse(votes[0].payload);
  EXPECT_EQ(payload,
            (json{{"kind", "files"}, {"path", "/shared/\"a b\"/step-20"}, {"files", 3}, {"bytes", 1048576}}));
  EXPECT_FALSE(votes[1].ok);
  EXPECT_EQ(votes[1].payload, "no space left");
  EXPECT_EQ(program->ask("outcome 20"), "0");
  say(CommitOutcome{5, 20, true, ""});
  say(CommitOutcome{5, 30, false, "rank 3: no space left"});
  EXPECT_TRUE(answers("outcome 30", "2"));
  EXPECT_EQ(program->ask("outcome 20"), "1");
  EXPECT_EQ(program->ask("outcome 40"), "0");
}

TEST_P(ClientTest, FilesAreVotedOnByNameWithTheirDigests) {
  connect();
  files::fs::create_directories(folder.path / "own/meta");
  files::replace_atomically(folder.path / "own/model.pt", "abc");
  files::replace_atomically(folder.path / "own/meta/\"x\"", "");
  files::fs::create_directory_symlink("own", folder.path / "latest");
  const std::string path = files::fs::canonical(folder.path / "own").string();
  program->tell("vote_file 20 model.pt");
  program->tell("vote_file 30 not there");
  program->tell("vote_file 20 meta/\"x\"");
  program->tell("vote 20 0 0 " + (folder.path / "latest").string());
  files::fs::remove(folder.path / "latest");
  program->tell("vote 30 0 0 " + path);
  program->tell("vote 40 2 5 " + path);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 3; }));
  std::map<std::int64_t, RankVote> votes;
  for (const auto& vote : all<RankVote>()) votes[vote.step] = vote;
  ASSERT_TRUE(votes[20].ok) << votes[20].payload;
  // FIPS 180-4, cut to 256 bits.
  const char* const of_abc = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a";
  const char* const of_nothing = "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce";
  EXPECT_EQ(json::parse(votes[20].payload),
            (json{{"kind", "files"},
                  {"path", path},
                  {"files", 2},
                  {"bytes", 3},
                  {"list", json::array({json::array({"model.pt", 3, of_abc}),
                                        json::array({"meta/\"x\"", 0, of_nothing})})}}));
  EXPECT_FALSE(votes[30].ok);
  EXPECT_THAT(votes[30].payload, HasSubstr("not there"));
  EXPECT_EQ(json::parse(votes[40].payload),
            (json{{"kind", "files"}, {"path", path}, {"files", 2}, {"bytes", 5}}));
}

TEST_P(ClientTest, NamesOfFilesAreMadePlainAndWhatNoManifestHoldsIsCounted) {
  connect();
  files::fs::create_directories(folder.path / "own/meta");
  for (const char* name : {"own/model.pt", "own/meta/x", "own/a\tb", "beside"})
    files::replace_atomically(folder.path / name, "abc");
  const std::string path = files::fs::canonical(folder.path / "own").string();
  for (const char* name : {"20 ./model.pt", "50 meta/../model.pt", "30 model.pt", "30 ../beside", "40 a\tb"})
    program->tell(std::string("vote_file ") + name);
  program->tell("vote_file 20 " + path + "/meta//x");
  program->tell("vote 40 0 0 " + path);
  program->tell("vote_file 50 meta/x");
  for (const char* step : {"20", "30", "50"}) program->tell(std::string("vote ") + step + " 0 0 " + path);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 4; }));
  std::map<std::int64_t, json> votes;
  for (const auto& vote : all<RankVote>()) {
    ASSERT_TRUE(vote.ok) << vote.payload;
    votes[vote.step] = json::parse(vote.payload);
  }
  const auto names = [&](std::int64_t step) {
    std::vector<std::string> out;
    for (const json& file : votes[step]["list"]) out.push_back(file[0]);
    return out;
  };
  EXPECT_THAT(names(20), ElementsAre("model.pt", "meta/x"));
  EXPECT_THAT(names(50), ElementsAre("model.pt", "meta/x"));
  EXPECT_EQ(votes[30], (json{{"kind", "files"}, {"path", path}, {"files", 2}, {"bytes", 6}}));
  EXPECT_EQ(votes[40], (json{{"kind", "files"}, {"path", path}, {"files", 1}, {"bytes", 3}}));
}

TEST_P(ClientTest, TheEndWaitsForFilesThatAreRead) {
  connect();
  const auto path = folder.path / "large";
  files::replace_atomically(path, "");
  files::fs::resize_file(path, 300 << 20);  // some tenths of a second to hash, and it is not told before
  program->tell("vote_file 20 large");
  program->tell("vote 20 0 0 " + folder.path.string());
  program->tell("at 20 finishing");
  EXPECT_EQ(program->exit_with(75), 75);
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 1; }));
  EXPECT_TRUE(std::ranges::any_of(all<RankProgress>(), [](const RankProgress& at) {
    return at.phase == Phase::finishing && at.moves > 1;
  })) << "it is not hung";
  EXPECT_TRUE(all<RankVote>()[0].ok);
  EXPECT_EQ(json::parse(all<RankVote>()[0].payload)["bytes"], 300 << 20);
}

TEST_P(ClientTest, OrdersAreGivenOutOnceOrStay) {
  connect();
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ");
  say(Pause{true});
  EXPECT_TRUE(answers("orders", "1 0 0 1 -1 "));
  say(Pause{false});
  EXPECT_TRUE(answers("orders", "0 0 0 0 -1 "));
  say(Drain{false, "an order of mia"});
  EXPECT_TRUE(answers("orders", "1 1 0 0 -1 an order of mia"));
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ") << "it is given out once";
  say(Drain{false, "an order of mia"});  // a new agent repeats it
  say(Drain{false, "another"});
  EXPECT_TRUE(answers("orders", "1 1 0 0 -1 another"));
  say(Pause{true});
  EXPECT_TRUE(answers("orders", "1 0 0 1 -1 "));
  say(Drain{true, "SIGTERM", static_cast<std::int64_t>(unix_seconds()) + 86400});
  ASSERT_TRUE(until([this] { return asked_outside("orders").starts_with("1 1 1 0 86"); })) << "and no pause";
  EXPECT_TRUE(asked_outside("orders").starts_with("1 0 1 0 86")) << "the order to stop stays";
  say(Drain{true, "another"});
  say(CommitOutcome{5, 50, true, ""});
  EXPECT_TRUE(answers("outcome 50", "1"));
  EXPECT_THAT(program->ask("orders"), HasSubstr("SIGTERM"));
}

TEST_P(ClientTest, TheNextAgentHearsWhatHasHadNoAnswer) {
  connect();
  program->tell("restored 10 shared");
  program->tell("vote 20 1 1 a");
  program->tell("vote 30 1 1 b");
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2; }));
  say(CommitOutcome{5, 20, true, ""});
  ASSERT_TRUE(answers("outcome 20", "1"));
  stop_agent();
  program->tell("vote 40 1 1 c");  // said to nobody
  program->tell("at 41 data");
  start_agent();
  ASSERT_TRUE(until([this] { return agent->all<RankVote>().size() == 2 && agent->progress.step == 41; }));
  std::vector<std::int64_t> steps;
  for (const auto& vote : all<RankVote>()) steps.push_back(vote.step);
  EXPECT_THAT(steps, ElementsAre(30, 40));
  EXPECT_EQ(all<RankRestored>().size(), 1u);
}

TEST_P(ClientTest, LastWordsReachTheAgentBeforeTheProcessEnds) {
  connect();
  program->tell("at 9 finishing");
  program->tell("failed 93 the loss is not a number\tor \"so\"");
  std::thread answering([this] {
    EXPECT_TRUE(until([this] { return agent->all<RankFailed>().size() == 1; }));
    say(Taken{});
  });
  EXPECT_EQ(program->exit_with(93), 93);
  answering.join();
  EXPECT_EQ(all<RankFailed>()[0].exit_code, 93);
  EXPECT_EQ(all<RankFailed>()[0].why, "the loss is not a number\tor \"so\"");
  EXPECT_EQ(loop.call([this] { return agent->progress.step; }), 9);
}

TEST_P(ClientTest, Rank0BringsTheFinalState) {
  place.rank = 0;
  connect();
  program->tell("at 100 finishing");
  program->tell("metrics 1.5 51200 0");
  program->tell("finished 100");
  ASSERT_TRUE(until([this] { return agent->all<RankFinished>().size() == 1; }));
  const auto state = all<RankFinished>()[0].state;
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step, 100);
  EXPECT_EQ(state->tokens, 51200);
  EXPECT_EQ(state->loss, 1.5);
  say(Taken{});
  program->tell("close");
  EXPECT_EQ(program->ask("open"), "0") << "a client is opened once";
  EXPECT_EQ(program->exit_with(0), 0);
}

TEST_P(ClientTest, AnAgentThatDoesNotAnswerDelaysTheEndByTwoSecondsAtMost) {
  connect();
  program->tell("finished 1");
  EXPECT_EQ(program->exit_with(0), 0);  // it does end
}

TEST_P(ClientTest, AChildOfForkSaysNothing) {
  connect();
  program->tell("at 7 forward");
  EXPECT_EQ(program->ask("fork"), "0");
  program->tell("at 8 forward");
  ASSERT_TRUE(until([this] { return agent->progress.step == 8; }));
  EXPECT_TRUE(all<RankVote>().empty() && all<RankFailed>().empty());
  loop.call([this] {
    EXPECT_EQ(agent->hellos.size(), 1u);
    EXPECT_EQ(agent->gone, 0) << "the connection is the same";
  });
}

TEST_P(ClientTest, WithoutAnAgentNothingHappens) {
  start(false);
  EXPECT_EQ(program->ask("open"), "0");
  for (const char* line :
       {"at 1 forward", "metrics 1 1 1", "restored 1 fresh", "vote 1 1 1 a", "vote_file 2 a", "vote 2 0 0 /",
        "vote_failed 1 b", "finished 1", "failed 1 c", "close"})
    program->tell(line);
  EXPECT_EQ(program->ask("orders"), "0 0 0 0 -1 ");
  EXPECT_EQ(program->ask("outcome 1"), "0");
  EXPECT_EQ(program->ask("newest"), "-1");
  EXPECT_EQ(program->exit_with(3), 3);
  EXPECT_TRUE(loop.call([this] { return agent->hellos.empty(); }));
}

TEST_P(ClientTest, AnotherRanksKeyIsNotTaken) {
  start();
  files::replace_atomically(place.key_file, to_hex(rank_key(secret, {2, 5})) + "\n", files::for_owner);
  EXPECT_EQ(program->ask("open"), "1") << "it goes on without the agent";
  program->tell("at 1 forward");
  EXPECT_EQ(program->exit_with(0), 0);
  EXPECT_TRUE(loop.call([this] { return agent->hellos.empty(); }));
}

TEST_P(ClientTest, NonsenseFromTheAgentIsPassedOver) {
  connect();
  loop.call([this] {
    for (const char* text : {"nonsense", "[1]", "{", R"({"m":7})", R"({"m":"commit_outcome","step":20})",
                             R"({"m":"a message of a later version","x":{"y":[1,{"z":"\u0041"}]}})",
                             R"({"m":"drain","stop":"yes"})"})
      agent->channel->send(text);
    agent->channel->send(encode(Finish{0}));
    // A field of a later version, before those that are known.
    agent->channel->send(
        R"({"a":[{"m":"x"},"]"],"attempt":5,"durable":true,"m":"commit_outcome","step":20,"why":""})");
  });
  EXPECT_TRUE(answers("outcome 20", "1"));
  EXPECT_TRUE(asked_outside("orders").starts_with("0"));
}

INSTANTIATE_TEST_SUITE_P(InBothLanguages, ClientTest, testing::Values("C", "Python"),
                         [](const auto& at) { return at.param; });
INSTANTIATE_TEST_SUITE_P(InBothLanguages, BuffersTest, testing::Values("C", "Python"),
                         [](const auto& at) { return at.param; });

}  // namespace
}  // namespace holdfast::control
