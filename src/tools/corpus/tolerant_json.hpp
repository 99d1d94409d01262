#pragma once
// JSON as Python writes and reads it, beyond what JSON's own grammar and 64 bits allow.
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::corpus {

/// `line` with `number` in the place of each number that a parser of 64 bits refuses or changes (an integer
/// beyond 64 bits, 1e400) and of NaN, Infinity and -Infinity, and with \ufffd for each half of a surrogate
/// pair that stands alone, which `repaired` counts. What else is wrong with the line stays wrong.
std::string tolerant_json(std::string_view line, std::string_view number, std::uint64_t& repaired);

}  // namespace holdfast::corpus
