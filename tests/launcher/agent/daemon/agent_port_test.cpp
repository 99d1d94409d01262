// An agent finds a free port beside others' programs, and says who holds them when there is none.
#include "launcher/agent/daemon/agent_port.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/control/loop.hpp"

namespace holdfast::launcher {
namespace {

using testing::HasSubstr;

class AgentPortTest : public testing::Test {
 protected:
  /// Ports in a row that are free now.
  static int free_ports(int count) {
    for (int first = 21000;; first += 10) {
      bool all = true;
      for (int i = 0; all && i < count; ++i) all = find_free_port(first + i) == first + i;
      if (all) return first;
    }
  }
  void take(int port) {
    files::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<std::uint16_t>(port));
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    ASSERT_EQ(::listen(fd.get(), 1), 0);
    taken_.push_back(std::move(fd));
  }
  control::Loop::Handle listen() { return listen_for_agents(loop_, {"/run"}, node_, {}, nullptr); }

  control::RealLoop loop_;
  Roster::Node node_{"dgx001", "127.0.0.1", free_ports(3), "", 0, 3};
  std::vector<files::Fd> taken_;
};

TEST_F(AgentPortTest, TheFirstThatIsFree) {
  take(node_.port);
  take(node_.port + 1);
  const auto agent = listen();
  EXPECT_EQ(find_free_port(node_.port), node_.port + 3) << "it has the third";
}

TEST_F(AgentPortTest, WhoHoldsAllOfThem) {
  for (int i = 0; i < node_.ports; ++i) take(node_.port + i);
  try {
    listen();
    ADD_FAILURE() << "it listens";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::transient);
    EXPECT_THAT(error.what(), HasSubstr("no port is free for the agent on dgx001"));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(node_.port + 2) + ": node_test (process " +
                                        std::to_string(::getpid())));
    EXPECT_THAT(error.what(), HasSubstr("supervise.port"));
  }
}

}  // namespace
}  // namespace holdfast::launcher
