#pragma once
// Unicode normalisation form C, as tokenizers apply it.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::text {

/// Bytes [first, end) of the original became bytes [new_first, new_end).
struct Rewritten {
  std::size_t first = 0, end = 0, new_first = 0, new_end = 0;
};

struct Normalized {
  std::string text;
  std::vector<Rewritten> rewritten;  ///< in order; between them nothing changed

  /// Where in the original byte `at` of `text` came from; the beginning of what was rewritten for bytes
  /// inside.
  std::size_t original(std::size_t at) const;
};

/// Nothing when `text` (valid UTF-8) is in form C already. Marks that Unicode knows since version 10 stay as
/// they are, as in Hugging Face `tokenizers`, whose tables are those of Unicode 9. Linear, but for sorting
/// the marks on one letter.
std::optional<Normalized> nfc(std::string_view text);

}  // namespace holdfast::text
