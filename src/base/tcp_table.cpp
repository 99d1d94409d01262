#include "src/base/tcp_table.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <sstream>

namespace holdfast {
namespace {

/// As in the tables: the kernel prints an address as words of this machine's byte order.
template <std::size_t words>
std::string text_of(const std::array<std::uint32_t, words>& address, in_port_t port) {
  std::string text;
  for (const std::uint32_t word : address) text += fmt::format("{:08X}", word);
  return text + fmt::format(":{:04X}", ntohs(port));
}

/// `six`: in the table of IPv6, which has connections of IPv4, too, where their socket is one of IPv6.
std::string text_of(const sockaddr_storage& address, bool six) {
  std::array<std::uint32_t, 4> words{};
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(words.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    return text_of(words, v6.sin6_port);
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  words = {0, 0, htonl(0xffff), v4.sin_addr.s_addr};
  return six ? text_of(words, v4.sin_port) : text_of(std::array{words[3]}, v4.sin_port);
}

}  // namespace

std::optional<TcpSocket> find_tcp_socket(std::istream& table,
                                         const std::function<bool(const TcpSocket&)>& wanted) {
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    TcpSocket found;
    std::string number, state, queues, timer, retries, time_out;
    if (!(fields >> number >> found.local >> found.remote >> state >> queues >> timer >> retries >>
          found.user >> time_out >> found.inode))
      continue;
    found.listens = state == "0A";
    if (wanted(found)) return found;
  }
  return std::nullopt;
}

std::optional<uid_t> user_of_peer(const TcpTables& tables, const sockaddr_storage& own,
                                  const sockaddr_storage& peer) {
  for (const bool six : {false, true}) {
    if (!six && own.ss_family != AF_INET) continue;
    const std::string local = text_of(peer, six), remote = text_of(own, six);
    const auto found = find_tcp_socket(
        *tables(six), [&](const TcpSocket& one) { return one.local == local && one.remote == remote; });
    if (found) return found->user;
  }
  return std::nullopt;
}

}  // namespace holdfast
