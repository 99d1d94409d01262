#include "src/control/secret.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/access.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::control {
namespace {
constexpr std::size_t most_bytes = 2 * sizeof(Key) + 16;  // of the file
static_assert(crypto_auth_KEYBYTES == 32 && crypto_auth_BYTES == 32);
void start_library() {
  static const int started = sodium_init();
  if (started < 0) throw Error(Exit::runtime, "libsodium cannot start");
}
}  // namespace

void make_secret(const std::filesystem::path& file) {
  if (!files::exists_or_fail(file))
    files::replace_atomically(file, to_hex(random_key()) + "\n", files::for_owner);
}

Key random_key() {
  start_library();
  Key key;
  randombytes_buf(key.data(), key.size());
  return key;
}

Key mac(const Key& key, std::string_view text) {
  Key out;
  crypto_auth(out.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size(), key.data());
  return out;
}

Key mac(const Key& key, std::initializer_list<std::string_view> parts) {
  Key out;
  crypto_auth_hmacsha512256_state state;
  crypto_auth_hmacsha512256_init(&state, key.data(), key.size());
  for (const auto part : parts)
    crypto_auth_hmacsha512256_update(&state, reinterpret_cast<const unsigned char*>(part.data()),
                                     part.size());
  crypto_auth_hmacsha512256_final(&state, out.data());
  return out;
}

Key rank_key(const Key& secret, const RankId& of) {
  return mac(secret, "rank " + std::to_string(of.rank) + " of attempt " + std::to_string(of.attempt));
}

bool same(const Key& a, const Key& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

std::string to_hex(const Key& key) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : key) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

bool from_hex(std::string_view text, Key& key) {
  if (text.size() != 2 * key.size()) return false;
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < key.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    key[i] = static_cast<unsigned char>(high << 4 | low);
  }
  return true;
}

Key read_secret(const std::filesystem::path& file, const std::string& what) {
  const files::Fd fd = [&] {
    try {
      return files::open(file, O_RDONLY | O_NOFOLLOW);
    } catch (const Error& error) {
      throw Error(error.exit(), "cannot read " + what + " " + file.string(), error.why());
    }
  }();
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) throw system_error("cannot read " + what + " " + file.string(), errno);
  if (facts.st_uid != ::geteuid() && ::geteuid() != 0)
    throw Error(Exit::usage, what + " " + file.string() + " is not yours",
                "it belongs to " + name_of_user(facts.st_uid), "Start in a run directory of your own?");
  if (facts.st_mode & 077)
    throw Error(Exit::usage, what + " " + file.string() + " can be read by others",
                "anyone who reads it can speak to the run's agents",
                "chmod 600 it, or start in a new run directory");
  std::string text(most_bytes, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  if (got < 0) throw system_error("cannot read " + what + " " + file.string(), errno);
  text.resize(as_size(got));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  Key key;
  if (!from_hex(text, key))
    throw Error(Exit::usage, what + " " + file.string() + " is damaged", "it is not 64 hex digits");
  return key;
}

}  // namespace holdfast::control
