#pragma once
// Small things that are done to text in many places.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

/// Letters of ASCII as small ones; everything else as it is.
inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// Without the white space around it.
inline std::string_view trimmed(std::string_view text) {
  const auto first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
}

/// All before the first line feed, which may be nothing.
inline std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

/// Without their line feeds; empty lines are left out.
inline std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto line = first_line(text);
    if (!line.empty()) lines.push_back(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

}  // namespace holdfast
