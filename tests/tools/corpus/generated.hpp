#pragma once
// Generated documents, and how like each other they are by counting: what the hashes only estimate.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/digest.hpp"

namespace holdfast::corpus {

/// Numbers that are the same with every library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix64(state_ += digest_stride); }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  double unit() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(unit())) * std::cos(6.283185307179586 * unit()); }

 private:
  std::uint64_t state_;
};

using Text = std::vector<std::string>;  ///< words, in lower case and without punctuation

/// A word of a vocabulary in which few words are frequent and many rare, as in language.
inline std::string some_word(Dice& dice) {
  auto rank = static_cast<std::uint64_t>(std::pow(20000.0, dice.unit()));
  std::string word;
  for (; rank > 0; rank /= 20) word += static_cast<char>('a' + rank % 20);
  return word;
}

inline Text some_text(Dice& dice, std::size_t words) {
  Text text(words);
  for (std::string& word : text) word = some_word(dice);
  return text;
}

/// Each word replaced by another with probability `share`.
inline Text edited(Text text, double share, Dice& dice) {
  for (std::string& word : text)
    if (dice.unit() < share) word = some_word(dice);
  return text;
}

inline std::string joined(const Text& text) {
  std::string all;
  for (const std::string& word : text) {
    all += word;
    all += ' ';
  }
  return all;
}

/// Sets of shingles, each shingle a number: sorted.
class Shingles {
 public:
  explicit Shingles(std::size_t length) : length_(length) {}
  std::vector<int> of(const Text& text) {
    std::vector<int> all;
    for (auto first = text.begin(); text.end() - first >= std::ptrdiff_t(length_); ++first)
      all.push_back(
          numbers_.try_emplace(joined({first, first + std::ptrdiff_t(length_)}), std::ssize(numbers_))
              .first->second);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

 private:
  std::size_t length_;
  std::unordered_map<std::string, int> numbers_;
};

/// Jaccard similarity of two sets that are sorted.
inline double similarity(const std::vector<int>& a, const std::vector<int>& b) {
  std::size_t both = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    both += *i == *j;
    const bool first = *i <= *j, second = *j <= *i;
    i += first;
    j += second;
  }
  const std::size_t either = a.size() + b.size() - both;
  return either == 0 ? 0 : static_cast<double>(both) / static_cast<double>(either);
}

}  // namespace holdfast::corpus
