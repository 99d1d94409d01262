#pragma once
// Finding added tokens in text.
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tools/text/byte_bpe_model.hpp"

namespace holdfast::text {

/// Whether [first, end) lies in one of the ranges, which are sorted and disjoint.
inline bool lies_in(std::span<const std::pair<std::size_t, std::size_t>> ranges, std::size_t first,
                    std::size_t end) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), first,
                                      [](std::size_t at, const auto& range) { return at < range.first; });
  return after != ranges.begin() && end <= std::prev(after)->second;
}

class AddedTokens {
 public:
  struct Found {
    std::size_t first = 0, end = 0;  ///< bytes
    Token id = 0;
  };

  /// `contents` are not empty and differ.
  void add(std::string_view content, Token id, bool special);

  /// The first occurrence at or behind `from`, the longest of those that begin there. A special token counts
  /// only where `permitted(first, end)`.
  template <class Permitted>
  std::optional<Found> next(std::string_view text, std::size_t from, const Permitted& permitted) const {
    for (std::size_t first = from; first < text.size(); ++first) {
      std::size_t node = roots_[static_cast<unsigned char>(text[first])];
      std::optional<Found> longest;
      for (std::size_t end = first + 1; node != 0;) {
        const Node& at = nodes_[node];
        if (at.id >= 0 && (!at.special || permitted(first, end))) longest = Found{first, end, at.id};
        if (end == text.size()) break;
        const auto child = at.children.find(text[end++]);
        node = child == at.children.end() ? 0 : child->second;
      }
      if (longest) return longest;
    }
    return std::nullopt;
  }
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    Token id = -1;
    bool special = false;
    std::map<char, std::size_t> children;
  };

  std::array<std::size_t, 256> roots_ = {};  ///< nodes of first bytes; 0: none
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace holdfast::text
