#pragma once
#include <fcntl.h>
#include <sys/socket.h>

#include <functional>
#include <stop_token>

#include "src/base/files.hpp"

namespace holdfast::launcher {

/// While this lives, a connection is shut down as soon as what it is for is given up, in whichever thread:
/// who waits for the other end then waits no more.
class Interruptible {
 public:
  Interruptible(std::stop_token given_up, int socket)
      : socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)),
        end_(std::move(given_up), [fd = socket_.get()] { ::shutdown(fd, SHUT_RDWR); }) {}
  Interruptible(const Interruptible&) = delete;

 private:
  files::Fd socket_;  ///< the connection's, until this is gone
  std::stop_callback<std::function<void()>> end_;
};

}  // namespace holdfast::launcher
