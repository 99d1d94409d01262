#pragma once
// Byte pair encoding of one word: of all neighbours that a rule joins, those of the lowest rank are joined
// first, the leftmost of equals first (Sennrich, Haddow, Birch, "Neural machine translation of rare words
// with subword units", 2016).
#include <cstdint>
#include <span>
#include <vector>

#include "src/tools/text/tokenizer.hpp"

namespace holdfast::text {

/// Token `left` followed by token `right` is `whole`. Tokens are not negative.
struct MergeRule {
  Token left = 0, right = 0, whole = 0;
  std::uint32_t rank = 0;  ///< lower goes first
};

/// The rules, found by their two tokens.
class MergeTable {
 public:
  static constexpr std::uint32_t no_rank = ~0u;

  /// Fewer than 2^31 rules; of two for the same tokens the later one counts.
  explicit MergeTable(std::span<const MergeRule> rules);

  struct Found {
    std::uint32_t rank = no_rank;
    Token whole = 0;
  };
  Found find(Token left, Token right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = place(key);; at = (at + 1) & mask_) {
      if (entries_[at].key == key) return {entries_[at].rank, entries_[at].whole};
      if (entries_[at].key == empty) return {};
    }
  }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};  // tokens are below 2^31
  struct Entry {
    std::uint64_t key = empty;
    std::uint32_t rank = no_rank;
    Token whole = 0;
  };
  static std::uint64_t key_of(Token left, Token right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::uint64_t key) const;

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
};

/// Joins neighbours until no rule fits. Keeps its memory from word to word.
class WordMerger {
 public:
  explicit WordMerger(const MergeTable& table) : table_(&table) {}
  /// The tokens of a word's bytes are replaced by those of its pieces. n log n in its length.
  void merge(std::vector<Token>& tokens);

 private:
  void merge_short(std::vector<Token>& tokens);
  void merge_long(std::vector<Token>& tokens);

  struct Symbol {
    Token token;
    std::int32_t before, after;  ///< neighbours; -1: none
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    Token left, right, whole;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  const MergeTable* table_;
  std::vector<MergeTable::Found> pairs_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace holdfast::text
