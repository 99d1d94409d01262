#include "src/tools/text/charsmap.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/base/utf8.hpp"
#include "src/tools/text/unicode.hpp"

namespace holdfast::text {
namespace {

static_assert(std::endian::native == std::endian::little, "code units are read as they lie");

constexpr std::size_t block = 256;    // of code units: what follows a node lies in one of them
constexpr int max_prefixes = 32;      // of a text that are keys: SentencePiece has room for so many
constexpr int longest_key = 1 << 10;  // bytes; beyond it is a circle

/// A node of the trie, or, where `is_value`, a number: where a text begins.
struct CodeUnit {
  std::uint32_t bits = 0;

  bool is_value() const { return bits >> 31 != 0; }
  std::uint32_t value() const { return bits & 0x7FFFFFFF; }
  /// The last byte of the keys that come here.
  std::uint32_t label() const { return bits & 0xFF; }
  /// A key ends here; its value is the code unit at `next`.
  bool ends_key() const { return (bits >> 8 & 1) != 0; }
  /// The nodes that follow that at `own` are at next ^ label.
  std::uint32_t next(std::uint32_t own) const { return own ^ ((bits >> 10) << ((bits >> 9 & 1) * 8)); }
};

class Trie {
 public:
  explicit Trie(std::vector<CodeUnit> units) : units_(std::move(units)), nodes_(units_.size()) {
    std::iota(nodes_.begin(), nodes_.end(), 0U);
    std::erase_if(nodes_, [&](std::uint32_t node) { return units_[node].is_value(); });
    std::ranges::sort(nodes_, {}, [&](std::uint32_t node) { return first_of(node); });
  }

  /// No node leads out of the array, and every key to the beginning of one of `texts`.
  bool stays_inside(std::string_view texts) const {
    return !units_[0].is_value() && std::ranges::all_of(nodes_, [&](std::uint32_t node) {
      const std::uint32_t next = units_[node].next(node);
      if (next >= units_.size()) return false;
      const std::uint32_t at = units_[next].value();
      return !units_[node].ends_key() || (at < texts.size() && (at == 0 || texts[at - 1] == '\0'));
    });
  }
  bool keys_are_few() {
    const auto keys = keys_along(units_[0].next(0), 0);
    return keys && *keys <= max_prefixes;
  }

 private:
  /// Siblings have it in common.
  std::uint32_t first_of(std::uint32_t node) const { return node ^ units_[node].label(); }

  /// The most keys on one way from here on; nothing where a way is too long.
  std::optional<int> keys_along(std::uint32_t first, int depth) {
    if (const auto known = keys_.find(first); known != keys_.end()) return known->second;
    if (depth > longest_key) return std::nullopt;
    int most = 0;
    const auto first_of_node = [&](std::uint32_t node) { return first_of(node); };
    for (auto node = std::ranges::lower_bound(nodes_, first, {}, first_of_node);
         node != nodes_.end() && first_of(*node) == first; ++node) {
      const auto behind = keys_along(units_[*node].next(*node), depth + 1);
      if (!behind) return std::nullopt;
      most = std::max(most, *behind + (units_[*node].ends_key() ? 1 : 0));
    }
    return keys_[first] = most;
  }

  std::vector<CodeUnit> units_;
  std::vector<std::uint32_t> nodes_;             ///< siblings beside each other
  std::unordered_map<std::uint32_t, int> keys_;  ///< keys_along() of siblings
};

}  // namespace

bool sound_charsmap(std::string_view charsmap) {
  std::uint32_t bytes = 0;
  if (charsmap.size() < sizeof bytes) return false;
  std::memcpy(&bytes, charsmap.data(), sizeof bytes);
  charsmap.remove_prefix(sizeof bytes);
  if (bytes == 0 || bytes % (block * sizeof(CodeUnit)) != 0 || bytes >= charsmap.size()) return false;
  const std::string_view texts = charsmap.substr(bytes);
  if (texts.back() != '\0' || !utf8::valid(texts)) return false;
  std::vector<CodeUnit> units(bytes / sizeof(CodeUnit));
  std::memcpy(units.data(), charsmap.data(), bytes);
  Trie trie(std::move(units));
  return trie.stays_inside(texts) && trie.keys_are_few();
}

}  // namespace holdfast::text
