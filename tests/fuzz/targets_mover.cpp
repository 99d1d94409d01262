// What movers read: seals, each other's requests and answers, and the bytes of a bulk stream.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "launcher/agent/mover/requests.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/control/bulk.hpp"
#include "src/control/message.hpp"
#include "tests/fuzz/lines.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

using namespace control;
using snapshot::Seal;

namespace {

void try_seal_text(const std::string& text) {
  const auto seal = snapshot::seal_of(text);
  if (!seal) return;
  expects(snapshot::seal_of(snapshot::to_text(*seal)) == seal,
          "what is accepted is written and accepted again");
  std::set<std::string> names;
  for (const Seal::Buffer& buffer : seal->buffers) {
    expects(buffer.bytes > 0, "a buffer has bytes");
    expects(buffer.name.find('/') == std::string::npos && !buffer.name.starts_with('.'),
            "a name stays in its folder");
    names.insert(buffer.name);
  }
  expects(names.size() == seal->buffers.size(), "no two buffers are one file");
  std::string why;
  const Cleared told{1, 0, 0, {{0, seal->step, seal->attempt, seal->world, false}}};
  expects(decode(encode(told), why).has_value(), "what is sealed can be told the leader");
}

/// A file in memory with these bytes.
files::Fd file_of(std::string_view bytes) {
  files::Fd file(::memfd_create("holdfast-fuzz", MFD_CLOEXEC));
  files::write_all(file.get(), bytes.data(), bytes.size(), 0, "a file in memory");
  return file;
}
std::string text_in(const files::Fd& file, std::size_t bytes) {
  std::string text(bytes, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), bytes, 0);
  expects(got == static_cast<ssize_t>(bytes), "a file in memory can be read");
  return text;
}

struct Ends {
  files::Fd here, there;
};
Ends connected_ends() {
  int ends[2];
  expects(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  return {files::Fd(ends[0]), files::Fd(ends[1])};
}

/// As many as the other end reads.
void put_raw(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(as_size(n));
  }
}

void meet_stranger(std::string_view bytes, const Key& secret) {
  Ends ends = connected_ends();
  std::thread stranger([&bytes, socket = ends.there.get()] {
    put_raw(socket, bytes);
    ::shutdown(socket, SHUT_WR);
  });
  bool came_in = false;
  try {
    BulkStream(std::move(ends.here), Session::End::server, secret);
    came_in = true;
  } catch (const Error&) {
  }
  stranger.join();
  expects(!came_in, "a stranger is not let in");
}

/// Lines up to an empty one, each with its seal; behind them a file, `genuine`: with its tag.
void meet_mover(std::string_view bytes, const Key& secret, bool genuine) {
  const std::size_t blank = bytes.find("\n\n");
  const std::string_view lines = bytes.substr(0, blank);
  const std::string file(blank == std::string_view::npos ? "" : bytes.substr(blank + 2));
  constexpr std::size_t tag_bytes = 16;
  const std::size_t content = genuine ? file.size() : file.size() - std::min(file.size(), tag_bytes);
  Ends ends = connected_ends();
  std::thread mover([&, socket = std::move(ends.there)]() mutable {
    const files::Fd raw(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    try {
      BulkStream stream(std::move(socket), Session::End::client, secret);
      each_line(lines, [&](std::string_view line) {
        stream.send(line);
        return true;
      });
      if (genuine)
        stream.send_bytes(file_of(file).get(), static_cast<std::int64_t>(file.size()));
      else
        put_raw(raw.get(), file);
    } catch (const Error&) {  // the reader has gone
    }
    ::shutdown(raw.get(), SHUT_WR);
  });
  bool as_sent = true, believed = false;
  try {
    BulkStream stream(std::move(ends.here), Session::End::server, secret);
    each_line(lines, [&](std::string_view line) { return as_sent = as_sent && stream.receive() == line; });
    const files::Fd copy = file_of("");
    std::string seen;
    stream.receive_bytes(copy.get(), static_cast<std::int64_t>(content),
                         [&](std::span<const std::byte> part) {
                           seen.append(reinterpret_cast<const char*>(part.data()), part.size());
                         });
    believed = true;
    as_sent = as_sent && seen == file.substr(0, content) && text_in(copy, content) == seen;
  } catch (const Error&) {
  }
  mover.join();
  expects(as_sent, "what comes in is what was sent");
  expects(believed == genuine, "bytes are believed with their tag, and only then");
}

}  // namespace

/// With its own checksum, and with the right one.
void try_seal(std::string_view bytes) {
  const std::string text(bytes), body = text.substr(0, text.rfind("end "));
  try_seal_text(text);
  try_seal_text(body + fmt::format("end {:08x}\n", snapshot::crc32_of(0, body.data(), body.size())));
  if (const auto of = snapshot::folder_called(bytes)) {
    expects(snapshot::folder_name(of->first, of->second) == bytes, "a folder's name comes back");
    std::string why;
    const Cleared told{1, 0, 0, {{of->first, 1, 1, 1, of->second}}};
    expects(decode(encode(told), why).has_value(), "what lies there can be told the leader");
  }
}

void try_mover_request(std::string_view bytes) {
  try {
    const auto request = launcher::request_of(bytes);
    expects(launcher::request_of(launcher::to_text(request)) == request,
            "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
  try {
    const auto consent = launcher::consent_of(bytes);
    expects(launcher::consent_of(launcher::to_text(consent)) == consent,
            "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

/// The first byte says who speaks.
void try_bulk(std::string_view bytes) {
  if (bytes.empty()) return;
  const int mode = bytes[0] & 3;
  bytes.remove_prefix(1);
  static const Key secret = [] {
    Key key{};
    key.fill(7);
    return key;
  }();
  if (mode < 2) return meet_stranger(bytes, secret);
  meet_mover(bytes, secret, mode == 3);
}

}  // namespace holdfast::fuzz
