#pragma once
// The 256-bit secret of a run: a user who can read it can connect to the run's agents. And keys that follow
// from it.
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace holdfast::control {

using Key = std::array<unsigned char, 32>;

/// Reads 64 hex digits (`what`: whose they are, for errors); an Error when the file is missing, malformed, a
/// symbolic link, another user's (root reads those, too), or readable by anyone but its owner.
Key read_secret(const std::filesystem::path& file, const std::string& what = "the run's secret");
/// Makes the file, 0600, with a secret that nobody knows, unless there is one.
void make_secret(const std::filesystem::path& file);
Key random_key();
/// Whom a key of its own belongs to.
struct RankId {
  int rank = -1, attempt = 0;
  bool operator==(const RankId&) const = default;
};
/// What a rank proves itself with in place of the run's secret, which does not follow from it.
Key rank_key(const Key& secret, const RankId& of);
/// HMAC-SHA-512-256 (libsodium crypto_auth) of `text`, or of these parts of one, under `key`.
Key mac(const Key& key, std::string_view text);
Key mac(const Key& key, std::initializer_list<std::string_view> parts);
bool same(const Key& a, const Key& b);  ///< in constant time
std::string to_hex(const Key& key);
/// False when `text` is not 64 hex digits.
bool from_hex(std::string_view text, Key& key);

}  // namespace holdfast::control
