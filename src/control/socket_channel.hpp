#pragma once
// One socket that speaks the protocol: what channel.cpp accepts and dial.cpp connects.
#include <array>
#include <asio/buffer.hpp>
#include <asio/connect.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <deque>

#include "src/control/channel.hpp"
#include "src/control/session.hpp"

namespace holdfast::control {

using Socket = asio::generic::stream_protocol::socket;

class SocketChannel final : public Channel, public std::enable_shared_from_this<SocketChannel> {
 public:
  SocketChannel(asio::io_context& context, Session::End end, const Key& secret, std::optional<RankId> as = {})
      : socket_(context), timer_(context), session_(end, secret, as) {}

  void handle(Handlers handlers) override { handlers_ = std::move(handlers); }
  bool open() const override { return session_.established() && !closed_; }
  std::optional<RankId> proved_rank() const override { return session_.proved_rank(); }
  std::optional<pid_t> peer() const override {
    ucred who{};
    socklen_t size = sizeof who;
    const bool known = !closed_ && ::getsockopt(const_cast<Socket&>(socket_).native_handle(), SOL_SOCKET,
                                                SO_PEERCRED, &who, &size) == 0;
    return known && who.pid > 0 ? std::optional(who.pid) : std::nullopt;
  }
  std::optional<double> unacknowledged_s() const override {
    tcp_info info{};
    socklen_t size = sizeof info;
    const bool known = connected_ && !closed_ &&
                       ::getsockopt(const_cast<Socket&>(socket_).native_handle(), IPPROTO_TCP, TCP_INFO,
                                    &info, &size) == 0 &&
                       info.tcpi_state == TCP_ESTABLISHED;
    return known ? std::optional(1e-3 * info.tcpi_last_ack_recv) : std::nullopt;
  }

  void send(std::string_view json) override {
    if (closed_ || closing_) return;
    write_line(session_.seal(json));
  }
  void send_shared(const std::shared_ptr<const std::string>& text) override {
    if (closed_ || closing_) return;
    write_line(session_.seal_behind(*text), text);
  }

  void close() override {
    handlers_ = {};
    closing_ = true;
    if (queue_.empty()) shut();
  }

  Socket& socket() { return socket_; }
  /// Of one that connects: how far it has come.
  bool is_connected() const { return connected_; }
  bool was_refused() const { return refused_; }
  bool timed_out() const { return timed_out_; }

  void connect(const Socket::endpoint_type& endpoint) {
    socket_.async_connect(endpoint, [weak = weak_from_this()](std::error_code error) {
      const auto self = weak.lock();
      if (!self) return;
      self->refused_ = error == asio::error::connection_refused;
      if (error) return self->fail(error.message());
      self->connected();
    });
  }

  void start_timer(Millis limit, const char* what) {
    timer_.expires_after(limit);
    timer_.async_wait([weak = weak_from_this(), what](std::error_code error) {
      const auto self = weak.lock();
      if (!self || error || self->session_.established()) return;
      self->timed_out_ = true;
      self->fail(what);
    });
  }

  void connected() {
    connected_ = true;
    set_tcp(TCP_NODELAY, 1);
    set_tcp(TCP_THIN_LINEAR_TIMEOUTS, 1);  // after a short cut the next attempt to send is near
    set_tcp(TCP_KEEPIDLE, 1);  // while nothing is sent, the other end's kernel is asked each second ...
    set_tcp(TCP_KEEPINTVL, 1);
    set_tcp(TCP_KEEPCNT, 127);  // ... and may be silent: the most there can be (tcp(7))
    std::error_code ignored;
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    start_timer(handshake_limit, "no handshake within 5 s");
    if (auto line = session_.opening()) write_line(*line);
    read();
  }

  /// Without effect on a Unix socket.
  void set_tcp(int option, int value) {
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  }

  void fail(const std::string& why) {
    if (closed_) return;
    shut();
    if (auto closed = std::exchange(handlers_, {}).closed) closed(why);
  }

 private:
  /// Bytes that wait to be sent; above it the other end does not read.
  static constexpr std::size_t queue_limit = 64u << 20;
  static constexpr Millis handshake_limit{5000};

  void shut() {
    if (closed_) return;
    closed_ = true;
    timer_.cancel();
    std::error_code ignored;
    socket_.close(ignored);
  }

  /// A line that is sent: `shared`, which others send, too, and then `own`.
  struct Line {
    std::shared_ptr<const std::string> shared;
    std::string own;
    std::size_t size() const { return (shared ? shared->size() : 0) + own.size(); }
    std::array<asio::const_buffer, 2> buffers() const {
      return {shared ? asio::buffer(*shared) : asio::const_buffer(), asio::buffer(own)};
    }
  };

  void write_line(std::string own, std::shared_ptr<const std::string> shared = nullptr) {
    queue_.push_back({std::move(shared), std::move(own) + "\n"});
    queued_ += queue_.back().size();
    if (queued_ > queue_limit) return fail("the other end does not read");
    if (queue_.size() == 1) write_next();
  }

  void write_next() {
    asio::async_write(socket_, queue_.front().buffers(),
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
  std::deque<Line> queue_;
  std::size_t queued_ = 0;
  std::string input_;
  char chunk_[1 << 14];
  bool closed_ = false, closing_ = false;
  bool connected_ = false, refused_ = false, timed_out_ = false;
};

/// The handle of a caller. After its destruction no handler is called, though queued messages may still be
/// sent.
inline ChannelPtr held(std::shared_ptr<SocketChannel> channel) {
  Channel* const bare = channel.get();
  return ChannelPtr(bare, [channel = std::move(channel)](Channel*) mutable {
    channel->handle({});
    channel.reset();
  });
}

}  // namespace holdfast::control
