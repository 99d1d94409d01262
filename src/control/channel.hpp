#pragma once
// An authenticated, line-based connection between two processes of a run, over TCP (between nodes) or a Unix
// socket (within a node).
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/control/loop.hpp"
#include "src/control/secret.hpp"

namespace holdfast::control {

struct TcpAddress {
  /// An IP address or a name. A listener with an empty host listens on every interface, by IPv6 and by IPv4.
  std::string host;
  int port = 0;
  int ports = 1;  ///< dial: whom we look for listens on one of so many, from `port` on
  std::vector<std::string> addresses =
      {};  ///< dial: IP addresses of the host, tried before its name is looked up
};
using Address = std::variant<TcpAddress, std::filesystem::path>;
std::string to_text(const Address& address);

class Channel {
 public:
  struct Handlers {
    std::function<void()> opened;                        ///< both ends are authenticated
    std::function<void(std::string_view text)> message;  ///< one line whose seal is valid
    std::function<void(const std::string& why)> closed;  ///< once; never after close()
  };
  virtual ~Channel() = default;
  virtual void handle(Handlers handlers) = 0;  ///< replaces the handlers
  virtual void send(std::string_view text) = 0;
  /// The same of a long text that many get: it is not copied.
  virtual void send_shared(const std::shared_ptr<const std::string>& text) { send(*text); }
  /// Sends the queued messages, then closes. No handler is called afterwards.
  virtual void close() = 0;
  virtual bool open() const = 0;
  /// The rank whose key the other end has proved to know; nothing: it knows the run's secret.
  virtual std::optional<RankId> proved_rank() const { return std::nullopt; }
  /// Of a Unix socket: the process that has connected, as the kernel of this end names it. Nothing where it
  /// cannot be seen from here (a PID namespace that is no descendant of ours).
  virtual std::optional<pid_t> peer() const { return std::nullopt; }
  /// Over TCP: seconds since the kernel of the other end last acknowledged anything. It is asked once a
  /// second, and answers while no process there reads. Nothing while not connected.
  virtual std::optional<double> unacknowledged_s() const { return std::nullopt; }
};
using ChannelPtr = std::shared_ptr<Channel>;

struct Call {
  Address address;
  Key secret;
  Millis limit;
  Channel::Handlers handlers;
  std::optional<RankId> as = {};  ///< `secret` is the key of this rank; of a Unix socket only
};
/// Connects within `limit`, else calls closed(why). The channel lives as long as the caller holds it; no
/// handler is called after that. Of several addresses and ports the first is taken where the other end knows
/// the secret (dial.cpp); it is the first to be tried the next time.
inline ChannelPtr dial(Loop& loop, const Address& address, const Key& secret, Millis limit,
                       Channel::Handlers handlers) {
  return loop.dial({address, secret, limit, std::move(handlers)});
}

/// Of closed(why): no address and no port of the host was left where the other end may still be.
bool nobody_listens(const std::string& why);
/// Of closed(why): this process has no descriptor or no memory for a connection, so nothing is known of the
/// other end.
bool could_not_call(const std::string& why);
/// The whole of it where all refused the connection.
std::string refusal();

/// Where Loop::listen() accepts connections, whose other ends know the secret or the key of a rank.
struct Port {
  Address address;
  Key secret;
  std::function<void(ChannelPtr)> accepted;
};

/// RealLoop's.
class Listener {
 public:
  /// Throws Error (transient) when the address is taken. A stale Unix socket file is replaced; mode 0600.
  Listener(RealLoop& loop, const Address& address, const Key& secret,
           std::function<void(ChannelPtr)> accepted);
  ~Listener();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace holdfast::control
