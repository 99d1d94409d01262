// The protocol's readers: messages, the handshake and its seals, and the lines of a connection.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <cstring>
#include <filesystem>
#include <optional>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/control/channel.hpp"
#include "src/control/loop_inside.hpp"
#include "src/control/message.hpp"
#include "src/control/session.hpp"
#include "tests/fuzz/lines.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

using namespace control;

namespace {

Key key_of(unsigned char byte) {
  Key key{};
  key.fill(byte);
  return key;
}

/// A whole handshake between the two.
void shake(Session& client, Session& server) {
  std::optional<std::string> line = server.opening(), answer;
  std::string why;
  expects(client.handshake(*line, answer, why) && answer, "the client answers the challenge");
  line = answer;
  expects(server.handshake(*line, answer, why) && answer, "the server believes the client");
  line = answer;
  expects(client.handshake(*line, answer, why), "the client believes the server");
  expects(client.established() && server.established(), "both are sure");
}

}  // namespace

void try_message(std::string_view bytes) {
  std::string why;
  const auto message = decode(bytes, why);
  expects(message.has_value() == why.empty(), "what is refused has a reason");
  if (!message) return;
  const std::string text = encode(*message);
  expects(text.find('\n') == std::string::npos, "a message is a line");
  const bool has_payload = std::visit(
      [](const auto& m) {
        return requires { m.payload; }
        || requires { m.payloads; }
        || requires { m.published; };
      },
      *message);
  expects(has_payload || text.find('\t') == std::string::npos, "only payloads follow a tab");
  const auto again = decode(text, why);
  expects(again && encode(*again) == text, "what is accepted is written and accepted again");
}

/// The first byte says what the other lines are fed to.
void try_session(std::string_view bytes) {
  if (bytes.empty()) return;
  const int mode = bytes[0] & 3;
  bytes.remove_prefix(1);
  const Key secret = key_of(7);
  if (mode < 2) {  // a stranger, who does not know the secret: it never comes in
    Session here(mode == 0 ? Session::End::client : Session::End::server, secret);
    each_line(bytes, [&](std::string_view line) {
      std::optional<std::string> answer;
      std::string why;
      const bool goes_on = here.handshake(line, answer, why);
      expects(goes_on == why.empty(), "who is sent away hears why");
      expects(!here.established(), "nobody comes in without the secret");
      return goes_on;
    });
    return;
  }
  Session client(Session::End::client, secret), server(Session::End::server, secret);
  shake(client, server);
  Session& sender = mode == 2 ? client : server;
  Session& reader = mode == 2 ? server : client;
  each_line(bytes, [&](std::string_view line) {
    expects(!reader.open(line), "nothing comes in without a seal");
    const std::string sealed = sender.seal(line);
    const auto text = reader.open(sealed);
    expects(text && *text == line, "what was sealed comes out");
    expects(!reader.open(sealed), "and only once");
    return true;
  });
}

/// Bytes on a socket; when the first one is odd, from somebody who knows the secret and seals its lines, all
/// but the sixteenth.
void try_channel(std::string_view bytes) {
  static RealLoop loop;
  static const Key secret = key_of(7);
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("holdfast-fuzz-" + std::to_string(::getpid()));
  static ChannelPtr accepted;
  static std::size_t heard = 0;
  static const Listener listener(loop, path, secret, [](ChannelPtr channel) {
    accepted = std::move(channel);
    accepted->handle({nullptr,
                      [](std::string_view text) {
                        std::string why;
                        (void)decode(text, why);
                        ++heard;
                      },
                      nullptr});
  });
  if (bytes.empty()) return;
  const bool known = bytes[0] & 1;
  bytes.remove_prefix(1);
  heard = 0;

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  expects(fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
          "the listener is there");
  asio::io_context& context = loop.inside().context;
  const auto turn = [&] {
    context.restart();
    while (context.poll() > 0) {
    }
  };
  const auto put = [&](std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      turn();
      if (n < 0 && errno == EAGAIN) continue;
      if (n < 0) return;  // it has closed
      text.remove_prefix(as_size(n));
    }
  };
  const auto get = [&] {
    turn();
    char buffer[1024];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    return n <= 0 ? std::string() : std::string(buffer, as_size(n - 1));
  };
  std::size_t sent = 0;
  if (!known) {
    put(bytes);
    turn();
    expects(!accepted && heard == 0, "a stranger is not let in");
  } else {
    Session session(Session::End::client, secret);
    std::optional<std::string> answer;
    std::string why;
    expects(session.handshake(get(), answer, why) && answer, "the listener speaks first");
    put(*answer + "\n");
    expects(session.handshake(get(), answer, why) && session.established(), "and believes us");
    each_line(bytes, [&](std::string_view line) {
      if (sent % 16 == 15) return put(std::string(line) + "\n"), false;  // one that nobody has sealed
      return put(session.seal(line) + "\n"), ++sent, true;
    });
    turn();
    expects(heard == sent, "every sealed line arrives once, and nothing else");
  }
  ::close(fd);
  turn();
  accepted.reset();
  turn();
}

}  // namespace holdfast::fuzz
