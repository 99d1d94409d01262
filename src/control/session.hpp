#pragma once
// The handshake in which both ends of a connection authenticate, and the seal on every later line. Pure: text
// in, text out; channel.cpp does the input and output.
//
//   server -> client   {"holdfast":1,"nonce":N}
//   client -> server   {"nonce":M,"proof":mac(secret,"client"+N+M)}
//   server -> client   {"proof":mac(secret,"server"+N+M)}
//   then both          <text> TAB mac(session, direction + line number + text)      session =
//   mac(secret,"session"+N+M)
//
// The seal covers the line number and the direction, so a line cannot be replayed, dropped, reordered or
// reflected.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/control/secret.hpp"

namespace holdfast::control {

constexpr int protocol_version = 1;
constexpr std::size_t handshake_line_limit = 512;   ///< bytes, before the other end is authenticated
constexpr std::size_t sealed_line_limit = 8 << 20;  ///< bytes, after that

class Session {
 public:
  enum class End { client, server };
  Session(End end, const Key& secret);
  /// The first line to send, when this end starts the handshake.
  std::optional<std::string> opening() const;
  /// Takes a handshake line (without its newline) and returns the line to answer with, if any. False: the
  /// other end does not have the secret, or uses another version; `why` says which.
  bool handshake(std::string_view line, std::optional<std::string>& answer, std::string& why);
  bool established() const { return established_; }
  /// `text` must not contain a newline.
  std::string seal(std::string_view text);
  /// The text of a sealed line, or nothing when the seal is invalid.
  std::optional<std::string_view> open(std::string_view line);

 private:
  void establish();
  std::string proof(const char* whose) const;
  Key seal_of(bool by_client, std::uint64_t number, std::string_view text) const;
  End end_;
  Key secret_, session_{};
  std::string server_nonce_, client_nonce_;
  bool established_ = false;
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace holdfast::control
