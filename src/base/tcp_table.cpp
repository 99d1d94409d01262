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

/// An IPv4 address that an IPv6 socket shows is one of IPv4: the other end may have a socket of IPv4.
sockaddr_storage unmapped(const sockaddr_storage& address) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return address;
  sockaddr_storage out{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(out);
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  return out;
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
  const sockaddr_storage here = unmapped(own), there = unmapped(peer);
  for (const bool six : {false, true}) {
    if (!six && here.ss_family != AF_INET) continue;
    const std::string local = text_of(there, six), remote = text_of(here, six);
    const auto found = find_tcp_socket(
        *tables(six), [&](const TcpSocket& one) { return one.local == local && one.remote == remote; });
    if (found) return found->user;
  }
  return std::nullopt;
}

}  // namespace holdfast
