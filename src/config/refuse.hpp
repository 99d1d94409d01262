#pragma once
// How the rules about settings say no.
#include <string>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::config {

[[noreturn]] inline void refuse(std::string problem, std::string why, std::string hint) {
  throw Error(Exit::usage, std::move(problem), std::move(why), std::move(hint));
}

}  // namespace holdfast::config
