#pragma once
// The handshake in which both ends of a connection authenticate, and the seal on every later line. Pure: text
// in, text out; channel.cpp does the input and output.
//
//   server -> client   {"holdfast":2,"oldest":2,"nonce":N}
//   client -> server   {"holdfast":2,"nonce":M,"proof":mac(secret,"client"+N+M)}
//   server -> client   {"proof":mac(secret,"server"+N+M)}
//   then both          <text> TAB mac(session, direction + line number + text)      session =
//   mac(secret,"session"+N+M)
//
// A rank has a key of its own in place of the secret, and says whose it is: "rank" and "attempt" beside its
// proof.
//
// The seal covers the line number and the direction, so a line cannot be replayed, dropped, reordered or
// reflected.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/control/secret.hpp"

namespace holdfast::control {

constexpr int protocol_version = 2;
constexpr int oldest_protocol_version = 2;          ///< of the other end, that this one still speaks to
constexpr std::size_t handshake_line_limit = 512;   ///< bytes, before the other end is authenticated
constexpr std::size_t sealed_line_limit = 8 << 20;  ///< bytes, after that

class Session {
 public:
  enum class End { client, server };
  /// `as`, of a client: `secret` is the key of this rank.
  Session(End end, const Key& secret, std::optional<RankId> as = {});
  /// The first line to send, when this end starts the handshake.
  std::optional<std::string> opening() const;
  /// Takes a handshake line (without its newline) and returns the line to answer with, if any. False: the
  /// other end does not have the secret, or uses another version; `why` says which.
  bool handshake(std::string_view line, std::optional<std::string>& answer, std::string& why);
  /// A key for `use`, which only the two ends of this connection know.
  Key derive(std::string_view use) const { return mac(session_, use); }
  bool established() const { return established_; }
  /// The other end has proved that it is this rank, and nothing else; nothing: that it knows the secret.
  const std::optional<RankId>& proved_rank() const { return rank_; }
  /// What follows `text` in its line, which has no newline.
  std::string seal_behind(std::string_view text);
  /// The line.
  std::string seal(std::string_view text) { return std::string(text) + seal_behind(text); }
  /// The text of a sealed line, or nothing when the seal is invalid.
  std::optional<std::string_view> open(std::string_view line);

 private:
  void establish();
  std::string proof(const char* whose) const;
  Key seal_of(bool by_client, std::uint64_t number, std::string_view text) const;
  End end_;
  Key secret_, session_{};
  std::optional<RankId> rank_;  ///< whose key `secret_` is
  std::string server_nonce_, client_nonce_;
  bool established_ = false;
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace holdfast::control
