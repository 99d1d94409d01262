// A BulkStream is ready when its constructor returns: the socket has time limits, and the handshake is done,
// for whose answers there are 5 s in all. Then the users alternate lines and files as their protocol says. A
// line is sealed by the Session. A file goes in parts of 1 MiB as it is, and behind it a Poly1305 tag; its
// key is derived from the session, the direction and the number of the file in that direction, so no file can
// stand for another. `input_` holds what was received behind a line, and pull() takes from it first.
//
// Whatever is wrong with the other end or with its bytes is an Error (transient) by fail(), and the stream is
// of no use afterwards. An Error of write_all() means that this node could not write what it received.
// connect_to() gives each address of each host 2 s.
#include "src/control/bulk.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::control {
namespace {

constexpr std::size_t chunk_bytes = 1 << 20;
constexpr Millis handshake_patience{5000}, connect_patience{2000};

[[noreturn]] void fail(const std::string& why) {
  throw Error(Exit::transient, "the connection to another node's mover is of no use", why);
}

void set_time_limits(int socket, Millis patience) {
  const timeval limit{patience.count() / 1000, patience.count() % 1000 * 1000};
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Poly1305 over the bytes of one file, with a key that is used once.
class Tag {
 public:
  static constexpr std::size_t size = crypto_onetimeauth_BYTES;
  Tag(const Session& session, bool by_client, std::uint64_t number) {
    const Key key = session.derive("data" + std::string(by_client ? "c" : "s") + std::to_string(number));
    static_assert(sizeof key == crypto_onetimeauth_KEYBYTES);
    crypto_onetimeauth_init(&state_, key.data());
  }
  void add(const std::byte* data, std::size_t bytes) {
    crypto_onetimeauth_update(&state_, reinterpret_cast<const unsigned char*>(data), bytes);
  }
  std::array<std::byte, size> end() {
    std::array<std::byte, size> out;
    crypto_onetimeauth_final(&state_, reinterpret_cast<unsigned char*>(out.data()));
    return out;
  }

 private:
  crypto_onetimeauth_state state_;
};

}  // namespace

BulkStream::BulkStream(files::Fd socket, Session::End end, const Key& secret)
    : socket_(std::move(socket)),
      session_(end, secret),
      handshake_limit_(Deadline::in(handshake_patience)),
      client_(end == Session::End::client) {
  set_time_limits(socket_.get(), bulk_patience);
  handshake(end);
}

void BulkStream::handshake(Session::End end) {
  if (const auto first = session_.opening()) push((*first + "\n").data(), first->size() + 1);
  while (!session_.established()) {
    std::optional<std::string> answer;
    std::string why;
    if (!session_.handshake(line(handshake_line_limit), answer, why)) fail(why);
    if (answer) push((*answer + "\n").data(), answer->size() + 1);
  }
  if (end == Session::End::server && session_.proved_rank()) fail("a rank has no business here");
}

void BulkStream::push(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket_.get(), at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(errno == EAGAIN ? "the other end does not read" : "the other end is gone");
    at += n;
    bytes -= as_size(n);
  }
}

void BulkStream::fill() {
  char part[1 << 14];
  if (!session_.established()) {
    pollfd readable{socket_.get(), POLLIN, 0};
    if (handshake_limit_.passed() || ::poll(&readable, 1, handshake_limit_.left_ms()) == 0)
      fail("the other end does not answer");
  }
  const ssize_t n = ::recv(socket_.get(), part, sizeof part, 0);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) fail(n < 0 && errno == EAGAIN ? "the other end does not answer" : "the other end is gone");
  input_.append(part, as_size(n));
}

std::string BulkStream::line(std::size_t limit) {
  for (;;) {
    const auto end = input_.find('\n');
    if (end > limit && (end != std::string::npos || input_.size() > limit)) fail("a line is too long");
    if (end == std::string::npos) {
      fill();
      continue;
    }
    std::string out = input_.substr(0, end);
    input_.erase(0, end + 1);
    return out;
  }
}

void BulkStream::send(std::string_view text) {
  const std::string line = session_.seal(text) + "\n";
  push(line.data(), line.size());
}

std::string BulkStream::receive() {
  const std::string sealed = line(sealed_line_limit);
  const auto text = session_.open(sealed);
  if (!text) fail("a seal is broken");
  return std::string(*text);
}

void BulkStream::pull(std::byte* out, std::size_t bytes) {
  const std::size_t known = std::min(bytes, input_.size());
  std::copy_n(reinterpret_cast<const std::byte*>(input_.data()), known, out);
  input_.erase(0, known);
  for (std::size_t at = known; at < bytes;) {
    const ssize_t n = ::recv(socket_.get(), out + at, bytes - at, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(n < 0 && errno == EAGAIN ? "the other end does not send" : "the other end is gone");
    at += as_size(n);
  }
}

void BulkStream::send_bytes(int file, std::int64_t bytes) {
  Tag tag(session_, client_, sent_++);
  std::vector<std::byte> part(std::min(chunk_bytes, as_size(bytes)));
  for (std::int64_t at = 0; at < bytes;) {
    const std::size_t wanted = std::min(part.size(), as_size(bytes - at));
    const ssize_t n = ::pread(file, part.data(), wanted, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("a buffer is shorter than its seal says");
    tag.add(part.data(), as_size(n));
    push(part.data(), as_size(n));
    at += n;
  }
  const auto end = tag.end();
  push(end.data(), end.size());
}

void BulkStream::receive_bytes(int file, std::int64_t bytes, const Seen& seen) {
  Tag tag(session_, !client_, received_++);
  std::vector<std::byte> part(std::min(chunk_bytes, as_size(bytes)));
  for (std::int64_t at = 0; at < bytes;) {
    const std::size_t size = std::min(part.size(), as_size(bytes - at));
    pull(part.data(), size);
    tag.add(part.data(), size);
    seen(std::span(part.data(), size));
    files::write_all(file, part.data(), size, static_cast<std::uint64_t>(at), "a buffer");
    at += static_cast<std::int64_t>(size);
  }
  std::array<std::byte, Tag::size> theirs;
  pull(theirs.data(), theirs.size());
  if (theirs != tag.end()) fail("what came is not what was sent");
}

files::Fd connect_to(const std::vector<std::string>& hosts, int port) {
  std::string why = "there is no address";
  for (const auto& host : hosts) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
      why = host + ": " + ::gai_strerror(error);
      continue;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      files::Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket) continue;
      set_time_limits(socket.get(), connect_patience);
      if (::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return socket;
      why = host + ": " + std::string(::strerror(errno));
    }
  }
  fail(why);
}

files::Fd listen_on(int port) {
  std::string why;
  for (const int family : {AF_INET6, AF_INET}) {  // a machine may have no IPv6
    files::Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const int on = 1, off = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 any6{};
    sockaddr_in any4{};
    any6.sin6_family = AF_INET6;
    any4.sin_family = AF_INET;
    any6.sin6_port = any4.sin_port = htons(static_cast<std::uint16_t>(port));
    if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const auto* any = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&any6)
                                         : reinterpret_cast<const sockaddr*>(&any4);
    if (::bind(socket.get(), any, family == AF_INET6 ? sizeof any6 : sizeof any4) == 0 &&
        ::listen(socket.get(), 64) == 0)
      return socket;
    why = ::strerror(errno);
  }
  throw Error(Exit::transient, "cannot listen on port " + std::to_string(port), why);
}

int port_of(int socket) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) != 0) return 0;
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(at).sin_port);
}

}  // namespace holdfast::control
