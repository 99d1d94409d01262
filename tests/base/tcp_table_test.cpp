// Tables as a kernel has printed them.
#include "src/base/tcp_table.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "src/base/files.hpp"

namespace holdfast {
namespace {

// A listener of user 61000 on 127.0.0.1:43981, its connections with users 61001 and 61000, and one that the
// process at the other end has closed.
constexpr const char* four =
    R"(  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:ABCD 00000000:0000 0A 00000000:00000000 00:00000000 00000000 61000        0 2001 1 0000000000000000 100 0 0 10 0
   1: 0100007F:ABCD 0100007F:D431 01 00000000:00000000 00:00000000 00000000 61000        0 2002 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:D431 0100007F:ABCD 01 00000000:00000000 00:00000000 00000000 61001        0 2003 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:D432 0100007F:ABCD 01 00000000:00000000 00:00000000 00000000 61000        0 2004 1 0000000000000000 20 4 30 10 -1
   4: 0100007F:D433 0100007F:ABCD 06 00000000:00000000 03:00001741 00000000     0        0 0 3 0000000000000000
a line that is none
)";
// A connection of IPv4 by a socket of IPv6, and one of ::1.
constexpr const char* six =
    R"(  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:D434 0000000000000000FFFF00000100007F:ABCD 01 00000000:00000000 00:00000000 00000000 61001        0 3001 1 0000000000000000 20 4 30 10 -1
   1: 00000000000000000000000001000000:D435 00000000000000000000000001000000:ABCD 01 00000000:00000000 00:00000000 00000000 61002        0 3002 1 0000000000000000 20 4 30 10 -1
)";

sockaddr_storage address(const char* host, int port) {
  sockaddr_storage out{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(out);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
  if (::inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<in_port_t>(port));
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, host, &v6.sin6_addr), 1);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<in_port_t>(port));
  }
  return out;
}

std::optional<uid_t> user_at(const char* host, int port) {
  const TcpTables tables = [](bool of_six) {
    return std::make_unique<std::istringstream>(of_six ? six : four);
  };
  return user_of_peer(tables, address(host, 0xABCD), address(host, port));
}

TEST(TcpTable, SaysWhoIsAtTheOtherEnd) {
  EXPECT_EQ(user_at("127.0.0.1", 0xD431), 61001u);
  EXPECT_EQ(user_at("127.0.0.1", 0xD432), 61000u);
  EXPECT_EQ(user_at("127.0.0.1", 0xD433), 0u) << "nobody's any more";
  EXPECT_EQ(user_at("127.0.0.1", 0xD434), 61001u) << "in the other table";
  EXPECT_EQ(user_at("::1", 0xD435), 61002u);
  EXPECT_EQ(user_at("127.0.0.1", 0xABCD), std::nullopt);
  EXPECT_EQ(user_at("127.0.0.2", 0xD431), std::nullopt);
  EXPECT_EQ(user_at("::1", 0xD431), std::nullopt);
}

TEST(TcpTable, FindsListeners) {
  std::istringstream table(four);
  const auto found = find_tcp_socket(table, [](const TcpSocket& one) { return one.listens; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->local, "0100007F:ABCD");
  EXPECT_EQ(found->user, 61000u);
  EXPECT_EQ(found->inode, "2001");
}

TEST(TcpTable, KnowsThisProcessInThatOfThisMachine) {
  const files::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own = address("127.0.0.1", 0), peer{};
  socklen_t size = sizeof(sockaddr_in), peer_size = sizeof peer;
  auto* const at = reinterpret_cast<sockaddr*>(&own);
  ASSERT_EQ(::bind(listener.get(), at, size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), at, &size), 0);
  ASSERT_EQ(::connect(client.get(), at, size), 0);
  ASSERT_EQ(::getsockname(client.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size), 0);
  const TcpTables tables = [](bool of_six) {
    return std::make_unique<std::ifstream>(of_six ? "/proc/net/tcp6" : "/proc/net/tcp");
  };
  EXPECT_EQ(user_of_peer(tables, own, peer), ::geteuid());
}

}  // namespace
}  // namespace holdfast
