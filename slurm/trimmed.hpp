#pragma once
// The output of SLURM's tools without the white space around it.
#include <string_view>

namespace holdfast::slurm {

inline std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace holdfast::slurm
