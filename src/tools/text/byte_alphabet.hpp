#pragma once
// The alphabet in which byte-level BPE spells bytes (Radford and others, "Language models are unsupervised
// multitask learners", 2019; bytes_to_unicode() in GPT-2's encoder.py): printable bytes of Latin-1 stand for
// themselves, the other 68 for U+0100, U+0101, ...
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::text {

/// The character that spells `byte`.
char32_t spelled(unsigned char byte);
/// The bytes that `piece` (valid UTF-8) spells, or nothing when a character of it is not in the alphabet.
std::optional<std::string> unspelled(std::string_view piece);
/// The way back: every byte's character, in UTF-8.
std::string spelled(std::string_view bytes);

}  // namespace holdfast::text
