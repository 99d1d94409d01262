#include "launcher/agent/mover/seals.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

TEST(Seals, WhatARankMayComeBackFromIsNotReplaced) {
  const auto at = [](int attempt, std::int64_t step) { return std::optional(Seal{step, attempt, 4, {}}); };
  struct Row {
    const char* what;
    Generations known;
    int replaced;
  };
  // The present attempt is 3, and it began with step 10 of attempt 1.
  const Row rows[] = {
      {"nothing is sealed", {}, 0},
      {"one is sealed", {at(1, 10), std::nullopt}, 1},
      {"the state that it began with, and a newer one of no use", {at(1, 11), at(1, 10)}, 0},
      {"the same the other way round", {at(1, 10), at(1, 11)}, 1},
      {"its own newer one", {at(1, 10), at(3, 11)}, 0},
      {"its own newer one, and one of no use", {at(3, 11), at(2, 12)}, 1},
      {"its own two", {at(3, 12), at(3, 11)}, 1},
      {"two that are of no use", {at(2, 5), at(1, 8)}, 1},
  };
  for (const auto& row : rows)
    EXPECT_EQ(generation_to_replace(row.known, 3, 10, 1), row.replaced) << row.what;
}

}  // namespace
}  // namespace holdfast::launcher
