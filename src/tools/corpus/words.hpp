#pragma once
// The words of a text, as hashes: what near-duplicates are compared by.
//
// - White space of Unicode separates words.
// - Scripts that are written without spaces (Han, kana, Thai, Lao, Khmer, Myanmar) give a word per character;
//   else a whole Chinese sentence would be one word, and one changed character would change all of it.
// - Case is taken away from Latin, Greek and Cyrillic letters; ASCII's, Latin-1's, general and CJK
// punctuation
//   and control characters are left out, so that "Well-known," is "wellknown".
//
// There is no table of Unicode behind it: a character that it does not know is a letter, and equal texts have
// equal words whatever the characters are.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace holdfast::corpus {

class Words {
 public:
  /// `text`: valid UTF-8, or bytes from anywhere: then the words are anything, but the same each time.
  explicit Words(std::string_view text) : rest_(text) {}
  /// The hashes of the next words into `out`, and how many: fewer than `out` holds only at the end.
  std::size_t next(std::span<std::uint64_t> out);

 private:
  std::string_view rest_;  ///< of the text
};

}  // namespace holdfast::corpus
