#pragma once
// Text that remembers which of its bytes the template wrote itself. Special tokens are parsed there and
// nowhere else, so that nobody can end a turn by writing "<|im_end|>" into a message.
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::chat {

using Range = std::pair<std::size_t, std::size_t>;  ///< bytes [first, end)

struct Text {
  std::string bytes;
  std::vector<Range> own;  ///< sorted; they neither overlap nor touch
};

/// All of it is the template's own.
Text own_text(std::string bytes);
void append(Text& to, const Text& from);
/// Bytes [first, end) of `from`.
void append(Text& to, const Text& from, std::size_t first, std::size_t end);
void append(Text& to, std::string_view bytes);  ///< of unknown origin
Text part(const Text& of, std::size_t first, std::size_t end);

}  // namespace holdfast::chat
