#pragma once
// What the kernel tells of TCP sockets, in /proc/net/tcp and /proc/net/tcp6: of all users, also of those
// whose processes cannot be seen.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <string>

namespace holdfast {

/// A line of such a table: "0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000 61000 0
/// 4711 ...". A socket that its process has closed belongs to user 0.
struct TcpSocket {
  std::string local, remote;  ///< as in the table
  bool listens = false;
  uid_t user = 0;
  std::string inode;
};

/// The first line that `wanted` takes.
std::optional<TcpSocket> find_tcp_socket(std::istream& table,
                                         const std::function<bool(const TcpSocket&)>& wanted);

/// Opens /proc/net/tcp, or with true /proc/net/tcp6.
using TcpTables = std::function<std::unique_ptr<std::istream>(bool six)>;

/// Whose is the other end of a connection within this host? `own`, `peer`: the addresses of this end and of
/// that one, both IPv4 or both IPv6. Nothing: the tables do not have it.
std::optional<uid_t> user_of_peer(const TcpTables& tables, const sockaddr_storage& own,
                                  const sockaddr_storage& peer);

}  // namespace holdfast
