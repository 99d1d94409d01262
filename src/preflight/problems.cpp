#include "src/preflight/problems.hpp"

namespace holdfast::preflight {

std::vector<Error> Problems::all() const {
  std::vector<Error> out = everywhere_.all();
  out.insert(out.end(), here_.all().begin(), here_.all().end());
  return out;
}

void Problems::refuse() const {
  if (auto errors = all(); !errors.empty()) throw Errors(std::move(errors));
}

}  // namespace holdfast::preflight
