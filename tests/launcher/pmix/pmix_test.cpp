// holdfast-pmix with real MPI ranks: two nodes on this machine, each with a PMIx server and two ranks. The
// agents and the leader are played by the test, around the leader's FenceHub.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "launcher/agent/leader/fence_hub.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "src/base/env.hpp"
#include "src/base/subprocess.hpp"
#include "src/base/tcp_table.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using namespace control;
using namespace control::test;
using testing::Contains;
using testing::StartsWith;

constexpr int nodes = 2, ranks_per_node = 2, world = nodes * ranks_per_node;
constexpr Millis patience{30000};

class Pmix : public testing::Test {
 protected:
  struct Node {
    std::unique_ptr<Listener> listener;
    ChannelPtr server;  ///< the newest connection
    pid_t pid = 0;
  };

  void SetUp() override {
    const auto file = files::open(folder_.path / "secret", O_WRONLY | O_CREAT, 0600);
    files::append_all(file.get(), to_hex(secret_) + "\n", folder_.path / "secret");
    runner_.call([this] {
      hub_.begin(attempt);
      for (int n = 0; n < nodes; ++n) listen(n);
    });
    for (int n = 0; n < nodes; ++n) nodes_[n].pid = spawn(server_of(n));
  }
  void TearDown() override {
    for (const Node& node : nodes_)
      if (node.pid > 0) ::kill(node.pid, pmix_end_signal());
    for (const Node& node : nodes_) EXPECT_EQ(status_of(node.pid), 0);
    for (int n = 0; n < nodes; ++n) EXPECT_FALSE(files::is_there(folder_of(n)));
    runner_.call([this] {
      for (Node& node : nodes_) node.listener.reset(), node.server.reset();
      channels_.clear();
    });
  }

  std::filesystem::path folder_of(int n) const { return folder_.path / ("pmix-" + std::to_string(n)); }
  std::filesystem::path socket_of(int n) const { return folder_.path / ("agent-" + std::to_string(n)); }

  Command server_of(int n) const {
    Command command;
    command.argv = {HOLDFAST_PMIX,
                    "--socket",
                    socket_of(n).string(),
                    "--secret",
                    (folder_.path / "secret").string(),
                    "--folder",
                    folder_of(n).string(),
                    "--nodes",
                    "node0,node1",
                    "--slot",
                    std::to_string(n),
                    "--ranks-per-node",
                    std::to_string(ranks_per_node),
                    "--term",
                    "1",
                    "--attempt",
                    std::to_string(attempt)};
    return command;
  }

  void listen(int n) {
    nodes_[n].listener.reset();
    nodes_[n].listener =
        std::make_unique<Listener>(runner_.loop, socket_of(n), secret_, [this, n](const ChannelPtr& channel) {
          channels_.push_back(channel);
          channel->handle({nullptr,
                           [this, n, weak = std::weak_ptr(channel)](std::string_view line) {
                             hear(n, weak.lock(), line);
                           },
                           [](const std::string&) {}});
        });
  }

  void hear(int n, const ChannelPtr& from, std::string_view line) {
    std::string why;
    if (nodes_[n].server != from) {
      const auto hello = decode<Hello>(line, why);
      ASSERT_TRUE(hello && hello->role == Hello::Role::pmix) << line;
      nodes_[n].server = from;
      return;
    }
    const auto message = decode<PmixToAgent>(line, why);
    ASSERT_TRUE(message) << why;
    std::visit(Overloaded{
                   [&](const PmixRank& m) { variables_[m.rank] = m.environment; },
                   [&](const PmixFence& m) {
                     ++fences_heard_;
                     if (deaf_) return;
                     const auto complete = hub_.take(n, m);
                     if (!complete) return;
                     for (const int to : complete->nodes)
                       if (to != lost_answer_to_) tell(to, complete->answer);
                     lost_answer_to_ = -1;
                   },
                   [&](PmixQuestion m) {
                     m.asker = n;
                     ++questions_;
                     tell(m.rank / ranks_per_node, m);
                   },
                   [&](const PmixPublished& m) { tell(m.asker, m); },
               },
               *message);
  }
  void tell(int n, const Message& message) { nodes_[n].server->send(encode(message)); }

  /// A new leader has heard nothing so far.
  void new_leader() {
    hub_ = FenceHub();
    hub_.begin(attempt);
    for (int n = 0; n < nodes; ++n) tell(n, PmixRepeat{});
  }

  void start_ranks(std::vector<std::string> arguments = {}, const std::vector<std::string>& variables = {}) {
    ASSERT_TRUE(runner_.until([this] { return variables_.size() == world; }, patience));
    arguments.insert(arguments.begin(), MPI_RANKS);
    for (int rank = 0; rank < world; ++rank) {
      Command command;
      command.argv = arguments;
      command.environment = env::without({"PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER", "OMPI_"});
      command.output = output_of(rank);
      command.environment->insert(
          command.environment->end(),
          {"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader,tcp", "OMPI_MCA_btl_tcp_if_include=lo"});
      for (const auto& variable : runner_.call([this, rank] { return variables_.at(rank); }))
        command.environment->push_back(variable);
      for (const auto& variable : variables) command.environment->push_back(variable);
      ranks_[rank] = spawn(command);
    }
  }
  std::filesystem::path output_of(int rank) const { return folder_.path / ("rank-" + std::to_string(rank)); }
  static int status_of(pid_t pid) {
    int status = 0;
    if (pid <= 0) return -1;
    for (const auto limit = Deadline::in(patience); !limit.passed();) {
      if (::waitpid(pid, &status, WNOHANG) == pid) return exit_status(status);
      std::this_thread::sleep_for(Millis(5));
    }
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    return -1;
  }
  void expect_all_well() {
    if (HasFatalFailure()) return;
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(status_of(ranks_[rank]), 0);
      EXPECT_EQ(files::read_text(output_of(rank)), fmt::format("rank {} of 4, 2 on its node, sum 6\n", rank));
    }
  }

  static constexpr int attempt = 3;
  Folder folder_;
  Key secret_ = random_key();
  LoopThread runner_;
  Node nodes_[nodes];
  std::vector<ChannelPtr> channels_;
  FenceHub hub_;
  std::map<int, std::vector<std::string>> variables_;
  pid_t ranks_[world] = {};
  int fences_heard_ = 0, questions_ = 0;
  bool deaf_ = false;        ///< the leader is gone
  int lost_answer_to_ = -1;  ///< the leader dies before this node has its answer
};

TEST_F(Pmix, RanksFindEachOther) {
  start_ranks();
  expect_all_well();
  for (int rank = 0; rank < world; ++rank) {
    EXPECT_THAT(variables_.at(rank), Contains(fmt::format("PMIX_RANK={}", rank)));
    EXPECT_THAT(variables_.at(rank), Contains(fmt::format("OMPI_COMM_WORLD_LOCAL_RANK={}", rank % 2)));
  }
}

TEST_F(Pmix, RanksAskForWhatTheyNeed) {
  start_ranks({}, {"OMPI_MCA_pmix_base_async_modex=1", "OMPI_MCA_pmix_base_collect_data=0"});
  expect_all_well();
  EXPECT_GT(runner_.call([this] { return questions_; }), 0);
}

TEST_F(Pmix, LeadersChangeDuringAFence) {
  runner_.call([this] { deaf_ = true; });
  start_ranks();
  ASSERT_TRUE(runner_.until([this] { return fences_heard_ == nodes; }, patience));
  runner_.call([this] {  // the next leader dies, too, when it has answered one of the nodes
    deaf_ = false;
    lost_answer_to_ = 1;
    new_leader();
  });
  ASSERT_TRUE(runner_.until([this] { return lost_answer_to_ == -1; }, patience));
  runner_.call([this] { new_leader(); });
  expect_all_well();
}

TEST_F(Pmix, AgentsAreReplacedDuringAFence) {
  runner_.call([this] { deaf_ = true; });
  start_ranks();
  ASSERT_TRUE(runner_.until([this] { return fences_heard_ == nodes; }, patience));
  runner_.call([this] {
    deaf_ = false;
    for (int n = 0; n < nodes; ++n) {
      nodes_[n].server->close(), nodes_[n].server.reset();
      listen(n);
    }
  });
  expect_all_well();
}

TEST_F(Pmix, AnAnswerThatIsLostIsGivenAgain) {
  runner_.call([this] { lost_answer_to_ = 1; });
  start_ranks();
  ASSERT_TRUE(runner_.until([this] { return lost_answer_to_ == -1; }, patience));
  runner_.call([this] {  // the leader is the same; the other node does not come again
    nodes_[1].server->close(), nodes_[1].server.reset();
    listen(1);
  });
  expect_all_well();
}

TEST_F(Pmix, WhatRanksShareLiesInTheFolderOfTheirServer) {
  start_ranks({"stay"});
  const auto segments = [this](int n) {
    return std::ranges::count_if(files::list(folder_of(n)), [](const std::string& name) {
      return name.starts_with("vader_segment.") || name.starts_with("sm_segment.");
    });
  };
  ASSERT_TRUE(runner_.until([&] { return segments(0) == ranks_per_node && segments(1) == ranks_per_node; },
                            patience));
  for (const pid_t rank : ranks_) ::kill(rank, SIGKILL), status_of(rank);
}

TEST_F(Pmix, EndsAreExact) {
  start_ranks({"exit", "2"});
  EXPECT_EQ(status_of(ranks_[2]), 9);
  ::kill(ranks_[1], SIGKILL);
  EXPECT_EQ(status_of(ranks_[1]), 128 + SIGKILL);
  for (const int rank : {0, 3}) ::kill(ranks_[rank], SIGKILL), status_of(ranks_[rank]);
}

TEST_F(Pmix, AnAbortEndsWithItsCode) {
  start_ranks({"abort", "1"});
  EXPECT_EQ(status_of(ranks_[1]), 7);
  for (const int rank : {0, 2, 3}) ::kill(ranks_[rank], SIGKILL), status_of(ranks_[rank]);
}

/// Another user, who connects to every port of this host's own address and says nothing. Returns when `ports`
/// are connected, with the process that holds them.
pid_t hold_silent_connections(const std::vector<int>& ports) {
  int told[2] = {-1, -1};
  EXPECT_EQ(::pipe(told), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    bool all = ::setgid(65534) == 0 && ::setuid(65534) == 0;
    for (const int port : ports) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      all = all && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    all = all && ::write(told[1], "x", 1) == 1;
    for (;;) ::pause();
  }
  ::close(told[1]);
  char said = 0;
  EXPECT_EQ(::read(told[0], &said, 1), 1) << "they are not connected";
  ::close(told[0]);
  return pid;
}

/// On which a process listens, by what it has open.
std::vector<int> ports_of(pid_t pid) {
  std::vector<int> out;
  const std::filesystem::path folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& name : files::list(folder)) {
    std::error_code gone;
    const std::string is = std::filesystem::read_symlink(folder / name, gone).string();
    std::ifstream table("/proc/net/tcp");
    const auto found = find_tcp_socket(
        table, [&](const TcpSocket& one) { return one.listens && is == "socket:[" + one.inode + "]"; });
    if (found) out.push_back(std::stoi(found->local.substr(found->local.find(':') + 1), nullptr, 16));
  }
  return out;
}

TEST_F(Pmix, SilentConnectionsOfAnotherUserHoldUpNoRank) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  ASSERT_TRUE(runner_.until([this] { return variables_.size() == world; }, patience));
  std::vector<int> ports;
  for (const Node& node : nodes_)
    for (const int port : ports_of(node.pid)) ports.push_back(port);
  ASSERT_GE(ports.size(), std::size_t{nodes});
  const pid_t intruder = hold_silent_connections(ports);
  const auto begin = Clock::now();
  start_ranks();
  expect_all_well();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
  ::kill(intruder, SIGKILL), ::waitpid(intruder, nullptr, 0);
}

TEST_F(Pmix, WhoDoesNotKnowTheNameIsRefused) {
  ASSERT_TRUE(runner_.until([this] { return variables_.size() == world; }, patience));
  auto variables = runner_.call([this] { return variables_.at(0); });
  for (auto& variable : variables)
    if (variable.starts_with("PMIX_NAMESPACE=")) variable = "PMIX_NAMESPACE=holdfast.guessed";
  Command command;
  command.argv = {MPI_RANKS};
  command.environment = env::without({"PMIX_", "OMPI_"});
  command.environment->insert(command.environment->end(), variables.begin(), variables.end());
  const Finished done = run(command, patience);
  EXPECT_NE(done.status, 0) << done.out;
  EXPECT_THAT(done.out, testing::Not(StartsWith("rank")));
  EXPECT_EQ(runner_.call([this] { return fences_heard_; }), 0);
  start_ranks();
  expect_all_well();
}

}  // namespace
}  // namespace holdfast::launcher
