#pragma once
#include <asio/io_context.hpp>
#include <map>
#include <string>
#include <utility>

#include "src/control/loop.hpp"

namespace holdfast::control {
struct RealLoop::Inside {
  asio::io_context context{1};
  double longest_turn = 0;  ///< s
  /// Address and port that have answered last, by the host and first port that were asked for.
  std::map<std::pair<std::string, int>, std::pair<std::string, int>> answered;
};
}  // namespace holdfast::control
