#include "src/control/channel.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <asio/buffer.hpp>
#include <asio/connect.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <deque>

#include "src/base/error.hpp"
#include "src/control/loop_inside.hpp"
#include "src/control/session.hpp"
#include "src/control/worker.hpp"

namespace holdfast::control {
namespace {

using Socket = asio::generic::stream_protocol::socket;
constexpr std::size_t queue_limit = 64u
                                    << 20;  // bytes waiting to be sent; above it the other end does not read
constexpr Millis handshake_limit{5000};

class SocketChannel final : public Channel, public std::enable_shared_from_this<SocketChannel> {
 public:
  SocketChannel(asio::io_context& context, Session::End end, const Key& secret)
      : socket_(context), timer_(context), session_(end, secret) {}

  void handle(Handlers handlers) override { handlers_ = std::move(handlers); }
  bool open() const override { return session_.established() && !closed_; }

  void send(std::string_view json) override {
    if (closed_ || closing_) return;
    write_line(session_.seal(json));
  }

  void close() override {
    handlers_ = {};
    closing_ = true;
    if (queue_.empty()) shut();
  }

  Socket& socket() { return socket_; }
  std::unique_ptr<Worker> resolver;  ///< of an address that is a name

  void connect(const Socket::endpoint_type& endpoint) {
    socket_.async_connect(endpoint, [weak = weak_from_this()](std::error_code error) {
      const auto self = weak.lock();
      if (!self) return;
      if (error) return self->fail(error.message());
      self->connected();
    });
  }

  void start_timer(Millis limit, const char* what) {
    timer_.expires_after(limit);
    timer_.async_wait([weak = weak_from_this(), what](std::error_code error) {
      if (auto self = weak.lock(); self && !error && !self->session_.established()) self->fail(what);
    });
  }

  void connected() {
    std::error_code ignored;
    const int one = 1;
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    start_timer(handshake_limit, "no handshake within 5 s");
    if (auto line = session_.opening()) write_line(*line);
    read();
  }

  void fail(const std::string& why) {
    if (closed_) return;
    shut();
    if (auto closed = std::exchange(handlers_, {}).closed) closed(why);
  }

 private:
  void shut() {
    if (closed_) return;
    closed_ = true;
    timer_.cancel();
    std::error_code ignored;
    socket_.close(ignored);
  }

  void write_line(std::string line) {
    line += '\n';
    queued_ += line.size();
    if (queued_ > queue_limit) return fail("the other end does not read");
    queue_.push_back(std::move(line));
    if (queue_.size() == 1) write_next();
  }

  void write_next() {
    asio::async_write(socket_, asio::buffer(queue_.front()),
                      [self = shared_from_this()](std::error_code error, std::size_t) {
                        if (self->closed_) return;
                        if (error) return self->fail(error.message());
                        self->queued_ -= self->queue_.front().size();
                        self->queue_.pop_front();
                        if (!self->queue_.empty()) return self->write_next();
                        if (self->closing_) self->shut();
                      });
  }

  void read() {
    socket_.async_read_some(
        asio::buffer(chunk_), [weak = weak_from_this()](std::error_code error, std::size_t bytes) {
          const auto self = weak.lock();
          if (!self || self->closed_) return;
          if (error) return self->fail(error == asio::error::eof ? "the other end closed" : error.message());
          if (self->take(bytes)) self->read();
        });
  }

  /// False when the channel has been closed meanwhile.
  bool take(std::size_t bytes) {
    const std::size_t searched = input_.size();
    input_.append(chunk_, bytes);
    std::size_t begin = 0;
    for (std::size_t end = input_.find('\n', searched); end != std::string::npos;
         end = input_.find('\n', begin)) {
      const std::string_view line(input_.data() + begin, end - begin);
      if (!take_line(line)) return false;
      begin = end + 1;
    }
    input_.erase(0, begin);
    if (input_.size() > (session_.established() ? sealed_line_limit : handshake_line_limit))
      return fail("a line is too long"), false;
    return true;
  }

  bool take_line(std::string_view line) {
    if (!session_.established()) {
      std::optional<std::string> answer;
      std::string why;
      if (line.size() > handshake_line_limit || !session_.handshake(line, answer, why))
        return fail(why), false;
      if (answer) write_line(*answer);
      if (session_.established()) {
        timer_.cancel();
        if (auto opened = handlers_.opened) opened();
      }
      return !closed_;
    }
    const auto json = session_.open(line);
    if (!json) return fail("a line's seal is broken"), false;
    if (auto message = handlers_.message) message(*json);
    return !closed_;
  }

  Socket socket_;
  asio::steady_timer timer_;
  Session session_;
  Handlers handlers_;
  std::deque<std::string> queue_;
  std::size_t queued_ = 0;
  std::string input_;
  char chunk_[1 << 14];
  bool closed_ = false, closing_ = false;
};

/// The handle of a caller. After its destruction no handler is called, though queued messages may still be
/// sent.
ChannelPtr held(std::shared_ptr<SocketChannel> channel) {
  Channel* const bare = channel.get();
  return ChannelPtr(bare, [channel = std::move(channel)](Channel*) mutable {
    channel->handle({});
    channel.reset();
  });
}

/// Of an address that is no name.
std::optional<Socket::endpoint_type> literal(const Address& address) {
  if (const auto* path = std::get_if<std::filesystem::path>(&address))
    return asio::local::stream_protocol::endpoint(path->string());
  const auto& tcp = std::get<TcpAddress>(address);
  std::error_code no_number;
  const auto number = asio::ip::make_address(tcp.host, no_number);
  if (no_number) return std::nullopt;
  return asio::ip::tcp::endpoint(number, static_cast<unsigned short>(tcp.port));
}

Socket::endpoint_type listening(const Address& address) {
  if (const auto* tcp = std::get_if<TcpAddress>(&address); tcp && tcp->host.empty())
    return asio::ip::tcp::endpoint(asio::ip::tcp::v4(), static_cast<unsigned short>(tcp->port));
  if (const auto endpoint = literal(address)) return *endpoint;
  throw Error(Exit::runtime, "cannot listen on " + to_text(address), "it is a name, not an address");
}

struct LookedUp {
  std::optional<Socket::endpoint_type> endpoint;
  std::string why;
};
/// May take as long as the servers of names take.
LookedUp look_up(const TcpAddress& tcp) {
  asio::io_context context;
  std::error_code error;
  const auto found = asio::ip::tcp::resolver(context).resolve(tcp.host, std::to_string(tcp.port), error);
  if (error || found.empty())
    return {{}, "cannot resolve the host " + tcp.host + " (" + error.message() + ")"};
  return {found.begin()->endpoint(), {}};
}

}  // namespace

std::string to_text(const Address& address) {
  if (const auto* path = std::get_if<std::filesystem::path>(&address)) return path->string();
  const auto& tcp = std::get<TcpAddress>(address);
  return tcp.host + ":" + std::to_string(tcp.port);
}

ChannelPtr dial(Loop& loop, const Address& address, const Key& secret, Millis limit,
                Channel::Handlers handlers) {
  auto channel = std::make_shared<SocketChannel>(loop.inside().context, Session::End::client, secret);
  channel->handle(std::move(handlers));
  channel->start_timer(limit, "no connection in time");
  const std::weak_ptr weak = channel;
  try {
    if (const auto endpoint = literal(address)) {
      channel->connect(*endpoint);
      return held(std::move(channel));
    }
  } catch (const std::exception& error) {  // the path of a socket is too long
    loop.post([weak, why = std::string(error.what())] {
      if (const auto self = weak.lock()) self->fail(why);
    });
    return held(std::move(channel));
  }
  // A server of names may not answer.
  channel->resolver = std::make_unique<Worker>(loop, Millis(0));
  channel->resolver->ask([address] { return look_up(std::get<TcpAddress>(address)); },
                         [weak](const LookedUp& found) {
                           const auto self = weak.lock();
                           if (!self) return;
                           if (!found.endpoint) return self->fail(found.why);
                           self->connect(*found.endpoint);
                         });
  return held(std::move(channel));
}

struct Listener::State : std::enable_shared_from_this<Listener::State> {
  State(asio::io_context& c, const Key& s, std::function<void(ChannelPtr)> a)
      : context(c), acceptor(c), secret(s), accepted(std::move(a)) {}
  void accept() {
    acceptor.async_accept([weak = weak_from_this()](std::error_code error, Socket socket) {
      const auto self = weak.lock();
      if (!self || error == asio::error::operation_aborted) return;
      if (!error) {
        auto channel = std::make_shared<SocketChannel>(self->context, Session::End::server, self->secret);
        channel->socket() = std::move(socket);
        // Owned here until the other end is authenticated, then by the function that accepts it.
        channel->handle({[self, channel]() {
                           auto proved = held(channel);
                           channel->handle({});
                           if (self->accepted) self->accepted(std::move(proved));
                         },
                         nullptr, nullptr});
        channel->connected();
      }
      self->accept();
    });
  }
  asio::io_context& context;
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor;
  Key secret;
  std::function<void(ChannelPtr)> accepted;
  std::filesystem::path path;
};

Listener::Listener(Loop& loop, const Address& address, const Key& secret,
                   std::function<void(ChannelPtr)> accepted)
    : state_(std::make_shared<State>(loop.inside().context, secret, std::move(accepted))) {
  const auto endpoint = listening(address);
  const auto* path = std::get_if<std::filesystem::path>(&address);
  if (path) ::unlink(path->c_str());
  std::error_code error;
  state_->acceptor.open(endpoint.protocol(), error);
  if (!error && !path) state_->acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) state_->acceptor.bind(endpoint, error);
  if (!error && path) state_->path = *path, ::chmod(path->c_str(), 0600);
  if (!error) state_->acceptor.listen(1024, error);
  if (error)
    throw Error(Exit::transient, "cannot listen on " + to_text(address), error.message(),
                "Does another agent of this run live here?");
  state_->accept();
}

Listener::~Listener() {
  std::error_code ignored;
  state_->acceptor.close(ignored);
  state_->accepted = nullptr;  // for connections that are not yet authenticated
  if (!state_->path.empty()) ::unlink(state_->path.c_str());
}

}  // namespace holdfast::control
