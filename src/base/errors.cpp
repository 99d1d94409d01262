#include "src/base/errors.hpp"

#include <algorithm>
#include <string_view>

namespace holdfast {
namespace {

const Error& foremost(const std::vector<Error>& errors) {
  expects(!errors.empty(), "there are errors");
  const auto usage =
      std::ranges::find_if(errors, [](const Error& error) { return error.exit() == Exit::usage; });
  return usage == errors.end() ? errors.front() : *usage;
}

}  // namespace

Errors::Errors(std::vector<Error> all) : Error(foremost(all)), all_(std::move(all)) {}

void ErrorList::add(const Error& error) {
  const std::string_view text = error.what();
  if (std::ranges::none_of(all_, [&](const Error& other) { return other.what() == text; }))
    all_.push_back(error);
}

void ErrorList::refuse() const {
  if (!all_.empty()) throw Errors(all_);
}

}  // namespace holdfast
