#pragma once
// The tokens of words seen before. Most words of a text are few, short, and of a token or two.
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "src/base/digest.hpp"
#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {

/// A table of fixed size (4 MiB) in which a newer word takes an older one's place. Words of more than 31
/// bytes or 7 tokens are not kept. Not thread-safe.
class WordCache {
 public:
  using Key = std::array<std::uint64_t, 4>;  ///< the word, zeros, and its length in the last byte
  static constexpr std::size_t longest = sizeof(Key) - 1, max_tokens = 7;

  static Key key_of(std::string_view word) {
    Key key = {};
    std::memcpy(key.data(), word.data(), word.size());
    key[3] |= static_cast<std::uint64_t>(word.size()) << 56;
    return key;
  }
  std::span<const Token> find(const Key& key) const {
    const Entry& entry = entries_[place(key)];
    return entry.key == key ? std::span(entry.tokens).first(entry.count) : std::span<const Token>();
  }
  void keep(const Key& key, std::span<const Token> tokens) {
    if (tokens.empty() || tokens.size() > max_tokens) return;
    Entry& entry = entries_[place(key)];
    entry.key = key;
    entry.count = static_cast<std::uint32_t>(tokens.size());
    std::memcpy(entry.tokens.data(), tokens.data(), tokens.size_bytes());
  }

 private:
  static constexpr std::size_t size = 1 << 16;
  struct alignas(64) Entry {
    Key key = {};
    std::array<Token, max_tokens> tokens = {};
    std::uint32_t count = 0;
  };
  static std::size_t place(const Key& key) {
    return mix64(key[0] ^ mix64(key[1] ^ (mix64(key[2]) + key[3]))) & (size - 1);
  }

  std::vector<Entry> entries_ = std::vector<Entry>(size);
};

}  // namespace holdfast::text
