#pragma once
// A connection for large data between two nodes, for threads that may wait: authenticated as a Channel is,
// and bytes behind its lines have a tag of their own. docs/protocol.md ("Snapshot buffers") has the bytes.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/control/session.hpp"

namespace holdfast::control {

/// Every call throws Error (transient) when the other end goes away, is no agent of the run, or takes no
/// byte, or gives none, for bulk_patience.
constexpr Millis bulk_patience{10000};

class BulkStream {
 public:
  /// Shakes hands over a connected socket.
  BulkStream(files::Fd socket, Session::End end, const Key& secret);
  /// `text` has no newline.
  void send(std::string_view text);
  std::string receive();
  using Seen = std::function<void(std::span<const std::byte>)>;
  /// The first bytes of a file; an Error when it has fewer.
  void send_bytes(int file, std::int64_t bytes);
  /// Writes them from the start of `file`. They are genuine only once this has returned. `seen` gets every
  /// part.
  void receive_bytes(int file, std::int64_t bytes, const Seen& seen);

 private:
  void handshake(Session::End end);
  std::string line(std::size_t limit);
  void fill();
  void push(const void* data, std::size_t bytes);
  void pull(std::byte* out, std::size_t bytes);

  files::Fd socket_;
  Session session_;
  Deadline handshake_limit_;
  bool client_;
  std::string input_;
  std::uint64_t sent_ = 0, received_ = 0;  ///< files
};

/// Connects to the first of `hosts` that answers.
files::Fd connect_to(const std::vector<std::string>& hosts, int port);
/// Listens on all interfaces, by IPv6 and IPv4; 0: on any free port. Throws Error (transient).
files::Fd listen_on(int port);
/// The port that it listens on.
int port_of(int socket);

}  // namespace holdfast::control
