#pragma once
// What a plain TCP stream does between two ranks, for benchmarks to be measured by.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "src/base/as_size.hpp"

namespace holdfast::comm {

/// A TCP connection between ranks 0 and 1, along the way between their nodes.
class TcpStream {
 public:
  explicit TcpStream(int rank) : rank_(rank) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (rank == 0) {
      address.sin_addr = own_address();
      const int listener = socket(AF_INET, SOCK_STREAM, 0);
      socklen_t length = sizeof address;
      if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0)
        std::abort();
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
      MPI_Send(&address, sizeof address, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
      socket_ = accept(listener, nullptr, nullptr);
      close(listener);
    } else {
      MPI_Recv(&address, sizeof address, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      socket_ = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    }
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~TcpStream() { close(socket_); }
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  /// From rank 0 to rank 1; both return when it is there.
  void send(std::byte* data, std::size_t bytes) {
    char word = 0;
    if (rank_ == 0) {
      for (std::size_t at = 0; at < bytes;) at += moved(::send(socket_, data + at, bytes - at, 0));
      moved(recv(socket_, &word, 1, MSG_WAITALL));
    } else {
      for (std::size_t at = 0; at < bytes;) at += moved(recv(socket_, data + at, bytes - at, 0));
      moved(::send(socket_, &word, 1, 0));
    }
  }

 private:
  static std::size_t moved(ssize_t bytes) {
    if (bytes <= 0) std::abort();
    return as_size(bytes);
  }
  /// The first that is not the loopback's; that one when there is no other.
  static in_addr own_address() {
    in_addr found{htonl(INADDR_LOOPBACK)};
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
      if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
          (one->ifa_flags & IFF_LOOPBACK) == 0) {
        found = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
        break;
      }
    freeifaddrs(all);
    return found;
  }

  int rank_, socket_ = -1;
};

}  // namespace holdfast::comm
