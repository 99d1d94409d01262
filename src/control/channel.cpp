#include "src/control/channel.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <asio/ip/v6_only.hpp>

#include "src/base/error.hpp"
#include "src/control/gate.hpp"
#include "src/control/loop_inside.hpp"
#include "src/control/socket_channel.hpp"

namespace holdfast::control {
namespace {

constexpr Millis accept_pause{50};
/// Of a Unix socket, to which the job's user alone can connect: all ranks of a node may do so at a time.
constexpr Gate::Limits on_this_node{1024, 1024};

Socket::endpoint_type listening(const Address& address) {
  if (const auto* path = std::get_if<std::filesystem::path>(&address))
    return asio::local::stream_protocol::endpoint(path->string());
  const auto& tcp = std::get<TcpAddress>(address);
  const auto port = static_cast<unsigned short>(tcp.port);
  if (tcp.host.empty()) return asio::ip::tcp::endpoint(asio::ip::tcp::v6(), port);
  std::error_code no_number;
  const auto number = asio::ip::make_address(tcp.host, no_number);
  if (!no_number) return asio::ip::tcp::endpoint(number, port);
  throw Error(Exit::runtime, "cannot listen on " + to_text(address), "it is a name, not an address");
}

}  // namespace

std::string to_text(const Address& address) {
  if (const auto* path = std::get_if<std::filesystem::path>(&address)) return path->string();
  const auto& tcp = std::get<TcpAddress>(address);
  const bool has_colons = tcp.host.find(':') != std::string::npos;  // an IPv6 address
  return (has_colons ? "[" + tcp.host + "]" : tcp.host) + ":" + std::to_string(tcp.port);
}

struct Listener::State : std::enable_shared_from_this<Listener::State> {
  State(asio::io_context& c, const Address& address, const Key& s, std::function<void(ChannelPtr)> a)
      : context(c),
        acceptor(c),
        pause(c),
        secret(s),
        accepted(std::move(a)),
        gate("the agent at " + to_text(address),
             std::holds_alternative<TcpAddress>(address) ? Gate::Limits() : on_this_node) {}
  void accept() {
    acceptor.async_accept([weak = weak_from_this()](std::error_code error, Socket socket) {
      const auto self = weak.lock();
      if (!self || error == asio::error::operation_aborted) return;
      if (error) return self->accept_later();
      auto channel = std::make_shared<SocketChannel>(self->context, Session::End::server, self->secret);
      channel->socket() = std::move(socket);
      auto visit =
          self->gate.enter(source_of(channel->socket().native_handle()), [weak = std::weak_ptr(channel)] {
            if (const auto late = weak.lock()) late->fail("too many are open");
          });
      // Owned here until the other end is authenticated, then by the function that accepts it.
      channel->handle({[self, channel, visit = std::move(visit)]() {
                         auto proved = held(channel);
                         channel->handle({});
                         if (self->accepted) self->accepted(std::move(proved));
                       },
                       nullptr, nullptr});
      channel->connected();
      self->accept();
    });
  }
  /// Without a file descriptor for it, a connection goes on to wait, and accepting it to fail at once.
  void accept_later() {
    pause.expires_after(accept_pause);
    pause.async_wait([weak = weak_from_this()](std::error_code error) {
      if (const auto self = weak.lock(); self && !error) self->accept();
    });
  }
  /// `both`: of IPv6 and of IPv4.
  std::error_code open(const Socket::endpoint_type& endpoint, bool both) {
    std::error_code error, ignored;
    acceptor.close(ignored);
    acceptor.open(endpoint.protocol(), error);
    if (!error && path.empty()) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error && both) acceptor.set_option(asio::ip::v6_only(false), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error && !path.empty()) ::chmod(path.c_str(), 0600);
    if (!error) acceptor.listen(1024, error);
    return error;
  }

  asio::io_context& context;
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor;
  asio::steady_timer pause;
  Key secret;
  std::function<void(ChannelPtr)> accepted;
  Gate gate;
  std::filesystem::path path;
};

Listener::Listener(RealLoop& loop, const Address& address, const Key& secret,
                   std::function<void(ChannelPtr)> accepted)
    : state_(std::make_shared<State>(loop.inside().context, address, secret, std::move(accepted))) {
  const auto* path = std::get_if<std::filesystem::path>(&address);
  if (path) {
    ::unlink(path->c_str());
    state_->path = *path;
  }
  const auto* tcp = std::get_if<TcpAddress>(&address);
  const bool everywhere = tcp && tcp->host.empty();
  auto error = state_->open(listening(address), everywhere);
  // A machine without IPv6.
  if (everywhere &&
      (error == std::errc::address_family_not_supported || error == std::errc::address_not_available))
    error = state_->open(asio::ip::tcp::endpoint(asio::ip::tcp::v4(), static_cast<unsigned short>(tcp->port)),
                         false);
  if (error)
    throw Error(Exit::transient, "cannot listen on " + to_text(address), error.message(),
                "Does another agent of this run live here?");
  state_->accept();
}

Loop::Handle RealLoop::listen(Port port) {
  return std::make_shared<Listener>(*this, port.address, port.secret, std::move(port.accepted));
}

Listener::~Listener() {
  std::error_code ignored;
  state_->acceptor.close(ignored);
  state_->accepted = nullptr;  // for connections that are not yet authenticated
  if (!state_->path.empty()) ::unlink(state_->path.c_str());
}

}  // namespace holdfast::control
