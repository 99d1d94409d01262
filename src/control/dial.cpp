// Connecting to a host that has several addresses, or whose agent listens on one of several ports.
//
//   what a port does                        what is tried next
//   refuses, or fails the handshake         the next port of the same address, at once
//   is connected and says nothing for long  the next port of the same address, and the silent one is still
//   waited for does not answer for long                the next address, and this one is still waited for
//   cannot be reached                       the next address, at once
//
// The first that proves to know the secret is the other end.
#include <algorithm>
#include <array>
#include <list>

#include "src/control/channel.hpp"
#include "src/control/loop_inside.hpp"
#include "src/control/names.hpp"
#include "src/control/socket_channel.hpp"
#include "src/control/worker.hpp"

namespace holdfast::control {
namespace {

constexpr Millis patience{250};  // with one port or address, before the next is tried beside it

class DialedChannel final : public Channel, public std::enable_shared_from_this<DialedChannel> {
 public:
  DialedChannel(RealLoop& loop, const TcpAddress& to, const Key& secret, Handlers handlers)
      : loop_(loop), to_(to), secret_(secret), handlers_(std::move(handlers)) {
    for (int i = 0; i < to.ports; ++i) ports_.push_back(to.port + i);
    if (const auto known = answered().find({to.host, to.port}); known != answered().end()) {
      hosts_.push_back(known->second.first);
      const auto port = std::find(ports_.begin(), ports_.end(), known->second.second);
      if (port != ports_.end()) std::rotate(ports_.begin(), port, port + 1);
    }
    for (const auto& number : to.addresses)
      if (is_ip_address(number)) add_host(number);
    is_name_ = !is_ip_address(to.host);
    if (!is_name_) add_host(to.host);
  }
  ~DialedChannel() override {
    drop_tries();
    if (winner_) winner_->handle({});
  }
  DialedChannel(const DialedChannel&) = delete;

  void begin(Millis limit) {
    limit_ = loop_.after(limit, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->limit_has_passed();
    });
    next_host();
  }

  void handle(Handlers handlers) override {
    if (winner_)
      winner_->handle(std::move(handlers));
    else
      handlers_ = std::move(handlers);
  }
  void send(std::string_view text) override {
    if (winner_) winner_->send(text);
  }
  void send_shared(const std::shared_ptr<const std::string>& text) override {
    if (winner_) winner_->send_shared(text);
  }
  void close() override {
    over_ = true;
    handlers_ = {};
    drop_tries();
    if (winner_) winner_->close();
  }
  bool open() const override { return winner_ && winner_->open(); }
  std::optional<double> unacknowledged_s() const override {
    if (winner_) return winner_->unacknowledged_s();
    std::optional<double> least;
    for (const auto& one : tries_)
      if (const auto s = one.channel->unacknowledged_s(); s && (!least || *s < *least)) least = s;
    return least;
  }

 private:
  struct Try {
    std::string host;
    std::size_t port;  ///< index
    std::shared_ptr<SocketChannel> channel;
    Loop::Handle patience;
    bool passed_on = false;  ///< the next one has been begun
  };
  using At = std::list<Try>::iterator;

  std::map<std::pair<std::string, int>, std::pair<std::string, int>>& answered() {
    return loop_.inside().answered;
  }
  /// False: it is known already.
  bool add_host(const std::string& number) {
    const bool known = std::find(hosts_.begin(), hosts_.end(), number) != hosts_.end();
    if (!known) hosts_.push_back(number);
    return !known;
  }

  void begin_try(const std::string& host, std::size_t port) {
    auto channel = std::make_shared<SocketChannel>(loop_.inside().context, Session::End::client, secret_);
    const At at = tries_.insert(tries_.end(), Try{host, port, channel, nullptr});
    const auto weak = weak_from_this();
    channel->handle({[weak, at] {
                       if (const auto self = weak.lock()) self->won(at);
                     },
                     nullptr,
                     [weak, at](const std::string& why) {
                       if (const auto self = weak.lock()) self->lost(at, why);
                     }});
    at->patience = loop_.after(patience, [weak, at] {
      if (const auto self = weak.lock()) self->pass_on(at, at->channel->is_connected());
    });
    channel->connect(
        asio::ip::tcp::endpoint(asio::ip::make_address(host), static_cast<unsigned short>(ports_[port])));
  }

  void pass_on(At at, bool host_answers) {
    if (std::exchange(at->passed_on, true) || late_) return;
    if (host_answers && at->port + 1 < ports_.size())
      begin_try(at->host, at->port + 1);
    else
      next_host();
  }

  void next_host() {
    if (next_ < hosts_.size()) return begin_try(std::string(hosts_[next_++]), 0);
    if (!is_name_ || resolver_) return;
    // A server of names may not answer.
    looks_up_ = true;
    resolver_ = std::make_unique<Worker>(loop_, Millis(0));
    resolver_->ask([host = to_.host] { return look_up(host); },
                   [weak = weak_from_this()](const LookedUp& found) {
                     if (const auto self = weak.lock()) self->looked_up(found);
                   });
  }

  void looked_up(const LookedUp& found) {
    if (over_ || winner_ || late_) return;
    looks_up_ = false;
    name_trouble_ = found.why;
    bool news = false;
    for (const auto& number : found.addresses) news = add_host(number) || news;
    if (news) next_host();
    fail_if_none_is_left();
  }

  void won(At at) {
    winner_ = at->channel;
    answered()[{to_.host, to_.port}] = {at->host, ports_[at->port]};
    limit_.reset();
    const auto opened = handlers_.opened;
    winner_->handle(std::exchange(handlers_, {}));
    tries_.erase(at);
    drop_tries();
    if (opened) opened();
  }

  void lost(At at, const std::string& why) {
    const auto& channel = *at->channel;
    const bool reached = channel.is_connected() || channel.was_refused();
    if (channel.timed_out())
      silence_ = why;
    else if (channel.is_connected())
      strangers_ +=
          (strangers_.empty() ? "" : "; ") + to_text(TcpAddress{at->host, ports_[at->port]}) + ": " + why;
    else if (channel.was_refused())
      refused_ = true;
    else
      unreached_ = why;
    pass_on(at, reached);
    tries_.erase(at);
    fail_if_none_is_left();
  }

  void limit_has_passed() {
    late_ = true;
    if (std::any_of(tries_.begin(), tries_.end(), [](const Try& t) { return !t.channel->is_connected(); }))
      silence_ = "no connection in time";
    if (looks_up_) name_trouble_ = "the name " + to_.host + " has not been resolved in time";
    looks_up_ = false;
    for (At at = tries_.begin(); at != tries_.end();) {
      const At here = at++;
      if (here->channel->is_connected()) continue;  // the handshake has a limit of its own
      here->channel->handle({});
      tries_.erase(here);
    }
    fail_if_none_is_left();
  }

  void fail_if_none_is_left() {
    if (over_ || winner_ || !tries_.empty() || looks_up_) return;
    over_ = true;
    std::string why = silence_;
    if (why.empty() && (refused_ || !strangers_.empty())) why = refusal();
    if (why.empty()) why = unreached_;
    if (why.empty()) why = std::exchange(name_trouble_, "");
    if (!name_trouble_.empty()) why += "; " + name_trouble_;
    if (!strangers_.empty()) why += "; what listens there is no agent of this run (" + strangers_ + ")";
    limit_.reset();
    if (const auto closed = std::exchange(handlers_, {}).closed) closed(why);
  }

  void drop_tries() {
    for (auto& one : tries_) one.channel->handle({});
    tries_.clear();
    limit_.reset();
    resolver_.reset();
  }

  RealLoop& loop_;
  TcpAddress to_;
  Key secret_;
  Handlers handlers_;
  std::vector<int> ports_;
  std::vector<std::string> hosts_;  ///< IP addresses
  std::size_t next_ = 0;            ///< of them to be tried
  bool is_name_ = false, looks_up_ = false, late_ = false, over_ = false;
  std::unique_ptr<Worker> resolver_;
  std::list<Try> tries_;
  std::shared_ptr<SocketChannel> winner_;
  Loop::Handle limit_;
  bool refused_ = false;
  std::string silence_, strangers_, unreached_, name_trouble_;
};

}  // namespace

std::string refusal() { return std::make_error_code(std::errc::connection_refused).message(); }

bool could_not_call(const std::string& why) {
  constexpr std::array shortages = {std::errc::too_many_files_open, std::errc::too_many_files_open_in_system,
                                    std::errc::no_buffer_space, std::errc::not_enough_memory};
  return std::ranges::any_of(
      shortages, [&](std::errc one) { return why.starts_with(std::make_error_code(one).message()); });
}

bool nobody_listens(const std::string& why) { return why.starts_with(refusal()); }

ChannelPtr RealLoop::dial(Call call) {
  if (const auto* tcp = std::get_if<TcpAddress>(&call.address)) {
    auto channel = std::make_shared<DialedChannel>(*this, *tcp, call.secret, std::move(call.handlers));
    channel->begin(call.limit);
    return channel;
  }
  auto channel =
      std::make_shared<SocketChannel>(inside().context, Session::End::client, call.secret, call.as);
  channel->handle(std::move(call.handlers));
  channel->start_timer(call.limit, "no connection in time");
  try {
    channel->connect(
        asio::local::stream_protocol::endpoint(std::get<std::filesystem::path>(call.address).string()));
  } catch (const std::exception& error) {  // the path of a socket is too long
    post([weak = std::weak_ptr(channel), why = std::string(error.what())] {
      if (const auto self = weak.lock()) self->fail(why);
    });
  }
  return held(std::move(channel));
}

}  // namespace holdfast::control
