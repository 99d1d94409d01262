#include "src/base/error.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace holdfast {
namespace {
std::string sentence(const std::string& problem, const std::string& why, const std::string& hint) {
  std::string text = problem;
  if (!why.empty()) text += " (" + why + ")";
  if (!hint.empty()) text += ". " + hint;
  return text;
}
}  // namespace

Error::Error(Exit exit, std::string problem, std::string why, std::string hint)
    : std::runtime_error(sentence(problem, why, hint)),
      exit_(exit),
      problem_(std::move(problem)),
      why_(std::move(why)),
      hint_(std::move(hint)) {}

Error system_error(std::string problem, int error_number, std::string hint) {
  return {Exit::runtime, std::move(problem), std::strerror(error_number), std::move(hint)};
}

void expects(bool condition, const char* what) {
  if (!condition) throw std::logic_error(std::string("broken contract: ") + what);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace holdfast
