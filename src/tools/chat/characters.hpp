#pragma once
// What Python's str does with the characters of UTF-8 text: templates are written against that. Places are
// bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tools/chat/text.hpp"

namespace holdfast::chat {

/// The character at `at`, which moves behind it. A byte that is no UTF-8 is a character of its own.
char32_t next_character(std::string_view text, std::size_t& at);

/// str.isspace() of one character.
bool is_space(char32_t character);
/// False for what repr() escapes.
bool is_printable(char32_t character);

std::size_t count_characters(std::string_view text);
/// Where each character begins, and at last the size of the text.
std::vector<std::size_t> character_starts(std::string_view text);

/// What is left when characters of `chars` (null: white space) are taken from the left, the right, or both.
Range stripped(std::string_view text, const std::string_view* chars, bool left, bool right);
/// str.split() and rsplit(): by white space when `separator` is empty. `most` < 0: all; else the most cuts.
std::vector<Range> split(std::string_view text, std::string_view separator, std::int64_t most,
                         bool from_right);
/// str.splitlines(), without the ends of lines.
std::vector<Range> lines_of(std::string_view text);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
/// str.title(): every letter behind something that is none.
std::string titled(std::string_view text);

}  // namespace holdfast::chat
