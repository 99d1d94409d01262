#pragma once
// Text from anywhere made into valid UTF-8.
#include <cstdint>
#include <string>

namespace holdfast::corpus {

/// Replaces every malformed part of `text` by U+FFFD, as the Unicode Standard advises (one for each maximal
/// subpart); returns how many were replaced.
std::uint64_t repair_utf8(std::string& text);

}  // namespace holdfast::corpus
