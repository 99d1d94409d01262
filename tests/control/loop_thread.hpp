#pragma once
// For tests with real sockets: the loop in a thread of its own, plain sockets that violate the protocol, a
// folder that is removed after the test.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "src/control/channel.hpp"
#include "src/control/session.hpp"

namespace holdfast::control::test {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "holdfast-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  std::filesystem::path path;
};

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.run(); }) {}
  ~LoopThread() { end(); }
  void end() {
    loop.stop();
    if (thread_.joinable()) thread_.join();
  }
  /// Runs `work` in the loop's thread and returns its result.
  template <class Work>
  auto call(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    loop.post([&task] { task(); });
    return result.get();
  }
  bool until(const std::function<bool()>& there, Millis limit = Millis(10000)) {
    for (const auto deadline = Deadline::in(limit); !call(there);) {
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(Millis(1));
    }
    return true;
  }
  /// Returns when all data in flight between sockets has been handled.
  void settle() {
    for (int i = 0; i < 20; ++i) call([] {}), std::this_thread::sleep_for(Millis(1));
  }
  RealLoop loop;

 private:
  std::thread thread_;
};

inline int free_port() {
  const files::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

inline sockaddr_un unix_address(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

/// Accepts connections (the kernel does) and never sends a byte.
class RawListener {
 public:
  explicit RawListener(const std::filesystem::path& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = unix_address(path);
    if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd_.get(), 8) != 0)
      throw std::runtime_error("cannot listen");
  }

 private:
  files::Fd fd_;
};

class RawSocket {
 public:
  explicit RawSocket(const Address& to) {
    int done = -1;
    if (const auto* path = std::get_if<std::filesystem::path>(&to)) {
      fd_ = files::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const auto address = unix_address(*path);
      done = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    } else {
      fd_ = files::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<std::uint16_t>(std::get<TcpAddress>(to).port));
      done = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    if (done != 0) throw std::runtime_error("cannot connect");
  }
  void close() { fd_.reset(); }

  /// Sends until the other end reads no more.
  void send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += as_size(n);
    }
  }
  /// Reads until the other end has closed.
  bool closed_within(Millis limit) {
    char buffer[4096];
    for (const auto deadline = Deadline::in(limit); !deadline.passed();) {
      pollfd waiting{fd_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, deadline.left_ms()) > 0 && ::recv(fd_.get(), buffer, sizeof buffer, 0) <= 0)
        return true;
    }
    return false;
  }
  std::string line() {
    std::string text;
    for (char c = 0; ::recv(fd_.get(), &c, 1, 0) == 1 && c != '\n';) text += c;
    return text;
  }
  /// The client's part of the handshake, with the secret.
  Session shake_hands(const Key& secret) {
    Session session(Session::End::client, secret);
    std::optional<std::string> answer;
    std::string why;
    session.handshake(line(), answer, why);
    send(answer.value_or("") + "\n");
    session.handshake(line(), answer, why);
    return session;
  }

 private:
  files::Fd fd_;
};

}  // namespace holdfast::control::test
