#pragma once
// Connections whose other end has not proved yet that it knows a secret. Anybody on the network can open
// them, and each costs a descriptor, so only so many may be open: of one source, and of all. One more than
// that closes the oldest one of its source, or of the source that has the most. So who holds hundreds of
// connections closes his own, and a connection that proves itself within milliseconds is never closed, even
// where it comes from the same host.
//
//   who listens                           its gate
//   agent, for agents and other programs  Listener (channel.cpp): the leader, candidates, the job monitor
//   agent, for ranks and PMIx servers     Listener, on a Unix socket that only the job's user can reach
//   mover                                 MoverServer (launcher/agent/mover)
//   PMIx server, for ranks                none: other users are turned away (launcher/pmix/accept.cpp)
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace holdfast::control {

/// Thread-safe.
class Gate {
 public:
  struct Limits {
    std::size_t of_one = 32, of_all = 256;
  };
  /// `whose`: who listens, for the log. It has at most a line a minute, with the number of those that were
  /// closed.
  explicit Gate(std::string whose) : Gate(std::move(whose), Limits()) {}
  Gate(std::string whose, Limits limits);
  /// A connection of `source` has been accepted. `close` may be called, once, before what is returned has
  /// been destroyed: by the call of enter() that is for the next one. What is returned is destroyed when the
  /// connection has proved itself, or has ended.
  using Visit = std::shared_ptr<void>;
  [[nodiscard]] Visit enter(const std::string& source, std::function<void()> close);
  std::size_t waiting() const;   ///< connections that have not proved themselves
  std::uint64_t closed() const;  ///< since the beginning

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The address of the host at the other end of a socket, without its port; the same for all of a Unix socket.
std::string source_of(int socket);

}  // namespace holdfast::control
