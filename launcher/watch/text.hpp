#pragma once
// Text for a terminal: nothing that it would obey, and not wider than it is. Pure.
#include <string>
#include <string_view>

namespace holdfast::launcher::watch {

enum class Charset { ascii, utf8 };

/// `text` in characters that every terminal shows in one column: Latin, Greek, Cyrillic, common punctuation,
/// and with Charset::ascii only ASCII. All others become '?', control characters a blank.
std::string printable(std::string_view text, Charset charset);

/// Columns of a printable text.
int columns(std::string_view text);
/// The first `width` columns of a printable text; what is cut ends in "~".
std::string fitted(std::string_view text, int width);
/// The same, with blanks up to `width`.
std::string padded(std::string_view text, int width);

/// What of the bytes of one read from a terminal was typed as characters: the left arrow is '<', the right
/// one
/// '>', other escape sequences (function keys) are left out; an Escape alone stays.
std::string typed(std::string_view bytes);

}  // namespace holdfast::launcher::watch
