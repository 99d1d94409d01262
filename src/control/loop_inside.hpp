#pragma once
#include <asio/io_context.hpp>

#include "src/control/loop.hpp"

namespace holdfast::control {
struct Loop::Inside {
  asio::io_context context{1};
  double longest_turn = 0;  ///< s
};
}  // namespace holdfast::control
