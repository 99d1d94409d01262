// libpmix listens on 127.0.0.1, where every user of the host can connect, and waits for the first bytes of a
// connection before it accepts another: one that says nothing holds up the start of all ranks of the node. So
// this program has an accept() of its own, which libpmix finds before the C library's, and which closes
// connections of other users. A connection of the same user can still do it: that user could as well end the
// ranks.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "src/base/log.hpp"
#include "src/base/seldom.hpp"
#include "src/base/tcp_table.hpp"

namespace holdfast::launcher {
namespace {

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  if (address.ss_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
}

bool is_foreign(int connection) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (::getsockname(connection, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 || !is_loopback(own))
    return false;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return true;
  if (!std::ifstream("/proc/net/tcp")) return false;  // it cannot be told
  const TcpTables tables = [](bool six) {
    return std::make_unique<std::ifstream>(six ? "/proc/net/tcp6" : "/proc/net/tcp");
  };
  // In a table that changes while it is read, a line may be passed over.
  for (int looks = 0; looks < 5; ++looks)
    if (const auto user = user_of_peer(tables, own, peer)) return *user != ::geteuid();
  return true;
}

int accept_own(int listener, sockaddr* address, socklen_t* size, int flags) {
  const auto connection = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (connection < 0 || !is_foreign(connection)) return connection;
  ::close(connection);
  static Seldom lines;
  if (const auto closed = lines.count())
    log::warn("connections of other users to the PMIx server of this node have been closed: {}", *closed);
  errno = ECONNABORTED;  // as if it had gone before it was accepted
  return -1;
}

}  // namespace
}  // namespace holdfast::launcher

extern "C" {
__attribute__((visibility("default"))) int accept(int listener, sockaddr* address, socklen_t* size) {
  return holdfast::launcher::accept_own(listener, address, size, 0);
}
__attribute__((visibility("default"))) int accept4(int listener, sockaddr* address, socklen_t* size,
                                                   int flags) {
  return holdfast::launcher::accept_own(listener, address, size, flags);
}
}
