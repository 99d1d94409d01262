#pragma once
// A process that does what it is told, with the client in C or in Python, and the production's connection,
// handshake and messages at the other end.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/env.hpp"
#include "src/base/files.hpp"
#include "src/base/rank_env.hpp"
#include "src/base/subprocess.hpp"
#include "src/control/message.hpp"
#include "src/control/session.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::control {

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
    place.from.durable_steps = {300, 200};
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

}  // namespace holdfast::control
