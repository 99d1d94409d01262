// One pair of nodes: the first serves (LinkPort::serve), the second measures (measure_link). After the
// handshake of control::Session has proved the secret on both ends, the measuring end alone sends requests:
// 32 small round trips, whose median is the latency; then, in either direction, one chunk that shows how many
// bytes fill the time, and so many bytes at once. The rate is that of the slower direction. A request to end
// closes the measurement.
//
// Each wait of a Stream ends at its deadline. What goes wrong with a connection throws Broken, which becomes
// `why` here and never leaves this file. A connection that does not prove the secret within a second is
// closed, and serve() waits for the next one; after the proof a failure is the result. No partner can ask for
// more than max_bytes at once.
#include "launcher/health/pair_link.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/control/session.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::size_t chunk = 1 << 20, small = 64;
constexpr int round_trips = 32;
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< that a partner may ask for at once
constexpr Millis handshake_limit{1000};

/// Ends a measurement that has failed; thrown and caught in this file only.
struct Broken {
  std::string why;
};

/// One connection, every operation bounded by one deadline.
class Stream {
 public:
  Stream(files::Fd fd, Deadline deadline) : fd_(std::move(fd)), deadline_(deadline) {
    const int one = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  void until(Deadline deadline) { deadline_ = deadline; }

  void send(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::send(fd_.get(), at, bytes, MSG_NOSIGNAL);
      if (n > 0) {
        at += n;
        bytes -= as_size(n);
      }
      if (n <= 0) wait_after(errno, POLLOUT);
    }
  }
  void receive(void* data, std::size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::recv(fd_.get(), at, bytes, 0);
      if (n == 0) throw Broken{"the other end closed"};
      if (n > 0) {
        at += n;
        bytes -= as_size(n);
      }
      if (n < 0) wait_after(errno, POLLIN);
    }
  }
  void send_line(const std::string& line) { send((line + "\n").data(), line.size() + 1); }
  std::string receive_line() {
    std::string line;
    for (char c = 0;; line += c) {
      receive(&c, 1);
      if (c == '\n') return line;
      if (line.size() >= control::handshake_line_limit) throw Broken{"a line is too long"};
    }
  }

 private:
  void wait_after(int error, short events) {
    if (error == EINTR) return;
    if (error != EAGAIN && error != EWOULDBLOCK) throw Broken{std::strerror(error)};
    pollfd waiting{fd_.get(), events, 0};
    if (deadline_.passed() || ::poll(&waiting, 1, deadline_.left_ms() + 1) == 0)
      throw Broken{"no answer in time"};
  }
  files::Fd fd_;
  Deadline deadline_;
};

void prove(Stream& stream, control::Session::End end, const control::Key& secret) {
  control::Session session(end, secret);
  if (const auto line = session.opening()) stream.send_line(*line);
  while (!session.established()) {
    std::optional<std::string> answer;
    std::string why;
    if (!session.handshake(stream.receive_line(), answer, why)) throw Broken{why};
    if (answer) stream.send_line(*answer);
  }
}

enum class Request : char { echo = 'e', take = 't', give = 'g', end = '.' };

/// Serves the requests of the connecting end, until it ends.
void serve_requests(Stream& stream) {
  std::vector<char> buffer(chunk);
  for (;;) {
    char request = 0;
    stream.receive(&request, 1);
    if (request == static_cast<char>(Request::end)) return;
    if (request == static_cast<char>(Request::echo)) {
      stream.receive(buffer.data(), small);
      stream.send(buffer.data(), small);
      continue;
    }
    std::uint64_t bytes = 0;  // both ends have the same byte order: they are nodes of one cluster
    stream.receive(&bytes, sizeof bytes);
    if (bytes > max_bytes) throw Broken{"too many bytes"};
    const bool take = request == static_cast<char>(Request::take);
    if (!take && request != static_cast<char>(Request::give)) throw Broken{"an unknown request"};
    for (std::uint64_t left = bytes; left > 0;) {
      const auto part = as_size(std::min<std::uint64_t>(left, chunk));
      take ? stream.receive(buffer.data(), part) : stream.send(buffer.data(), part);
      left -= part;
    }
    if (take) stream.send(&request, 1);
  }
}

double round_trip(Stream& stream) {
  std::array<char, small> data{};
  const char request = static_cast<char>(Request::echo);
  const auto begin = Clock::now();
  stream.send(&request, 1);
  stream.send(data.data(), data.size());
  stream.receive(data.data(), data.size());
  return seconds_since(begin);
}

/// Seconds for `bytes` in one direction.
double transfer(Stream& stream, Request direction, std::uint64_t bytes, std::vector<char>& buffer) {
  char request = static_cast<char>(direction);
  const auto begin = Clock::now();
  stream.send(&request, 1);
  stream.send(&bytes, sizeof bytes);
  for (std::uint64_t left = bytes; left > 0;) {
    const auto part = as_size(std::min<std::uint64_t>(left, chunk));
    direction == Request::take ? stream.send(buffer.data(), part) : stream.receive(buffer.data(), part);
    left -= part;
  }
  if (direction == Request::take) stream.receive(&request, 1);
  return seconds_since(begin);
}

double rate(Stream& stream, Request direction, const LinkPlan& plan, std::vector<char>& buffer) {
  // The first chunk opens the TCP window and shows how many bytes fill the time.
  const double first = std::max(transfer(stream, direction, chunk, buffer), 1e-6);
  const double fitting = static_cast<double>(chunk) / first * plan.seconds;
  const auto bytes = static_cast<std::uint64_t>(std::clamp(
      fitting, static_cast<double>(chunk), static_cast<double>(std::max<std::int64_t>(plan.bytes, chunk))));
  return static_cast<double>(bytes) / std::max(transfer(stream, direction, bytes, buffer), 1e-6);
}

struct Resolved {
  sockaddr_storage address{};
  socklen_t size = 0;
};
std::optional<Resolved> resolve(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0 || found == nullptr)
    return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, &::freeaddrinfo);
  Resolved out;
  std::memcpy(&out.address, found->ai_addr, found->ai_addrlen);
  out.size = found->ai_addrlen;
  return out;
}

files::Fd connect_to(const std::string& host, int port, const Deadline& deadline) {
  const auto to = resolve(host, port);
  if (!to) throw Broken{"cannot resolve " + host};
  files::Fd fd(::socket(to->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw Broken{std::strerror(errno)};
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->address), to->size) == 0) return fd;
  if (errno != EINPROGRESS) throw Broken{std::strerror(errno)};
  pollfd waiting{fd.get(), POLLOUT, 0};
  if (::poll(&waiting, 1, deadline.left_ms() + 1) <= 0) throw Broken{"no connection in time"};
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) throw Broken{std::strerror(error)};
  return fd;
}

std::string text_of(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 ? text.data()
                                                                                                 : "";
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// Calls `take(name, address)` for every IPv4 address of this node, and then for those of IPv6.
template <class Take>
void each_address(const Take& take) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> held(list, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next)
      if (at->ifa_addr != nullptr && at->ifa_addr->sa_family == family && !is_link_local(at->ifa_addr))
        take(std::string(at->ifa_name), text_of(at->ifa_addr));
}

}  // namespace

LinkPort::LinkPort() : fd_(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const bool six = static_cast<bool>(fd_);
  if (!six) fd_ = files::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int both = 0;
  if (six) ::setsockopt(fd_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
  sockaddr_in6 any{};  // large enough for IPv4; the port has the same place
  any.sin6_family = six ? AF_INET6 : AF_INET;
  socklen_t size = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (!fd_ || ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&any), size) != 0 ||
      ::listen(fd_.get(), 16) != 0 || ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&any), &size) != 0)
    throw system_error("cannot open a port for the network check", errno);
  port_ = ntohs(any.sin6_port);
}

std::string LinkPort::serve(const control::Key& secret, Millis limit) const {
  const Deadline deadline = Deadline::in(limit);
  std::string last = "no partner has connected";
  while (!deadline.passed()) {
    pollfd waiting{fd_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, deadline.left_ms() + 1) <= 0) continue;
    files::Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) continue;
    bool proved = false;
    try {
      Stream stream(std::move(fd),
                    Deadline::in(std::min<std::chrono::nanoseconds>(handshake_limit, deadline.left())));
      prove(stream, control::Session::End::server, secret);
      proved = true;
      stream.until(deadline);
      serve_requests(stream);
      return {};
    } catch (const Broken& broken) {
      if (proved) return broken.why;
      last = broken.why;
    }
  }
  return last;
}

LinkResult measure_link(const std::string& host, int port, const control::Key& secret, const LinkPlan& plan) {
  const Deadline deadline = Deadline::in(plan.limit);
  LinkResult result;
  try {
    Stream stream(connect_to(host, port, deadline), deadline);
    prove(stream, control::Session::End::client, secret);
    std::vector<double> times(round_trips);
    for (auto& time : times) time = round_trip(stream);
    std::nth_element(times.begin(), times.begin() + round_trips / 2, times.end());
    std::vector<char> buffer(chunk);
    const double there = rate(stream, Request::take, plan, buffer),
                 back = rate(stream, Request::give, plan, buffer);
    const char end = static_cast<char>(Request::end);
    stream.send(&end, 1);
    result.latency_s = times[round_trips / 2];
    result.bytes_s = std::min(there, back);
  } catch (const Broken& broken) {
    result.why = broken.why;
  }
  return result;
}

std::string address_on(const std::string& interface) {
  std::string address;
  each_address([&](const std::string& name, const std::string& text) {
    if (name == interface && address.empty()) address = text;
  });
  return address;
}

std::string interface_towards(const std::string& host) {
  const auto to = resolve(host, 9);
  if (!to) return {};
  // Connecting a datagram socket sends nothing; it only chooses the route.
  const files::Fd fd(::socket(to->address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->address), to->size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return {};
  const std::string address = text_of(reinterpret_cast<const sockaddr*>(&own));
  std::string interface;
  each_address([&](const std::string& name, const std::string& text) {
    if (text == address && interface.empty()) interface = name;
  });
  return interface;
}

}  // namespace holdfast::launcher
