#pragma once
// Text that changes only on purpose: compared with a file under tests/, rewritten by
// scripts/golden_update.sh.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "src/base/env.hpp"

namespace holdfast::test {

inline void expect_golden(const std::string& text, const std::string& file) {
  const std::string path = std::string(HOLDFAST_SOURCE_DIR) + "/tests/launcher/golden/" + file;
  if (env::get("HOLDFAST_UPDATE_GOLDEN")) {
    std::ofstream(path) << text;
    return;
  }
  std::ostringstream wanted;
  wanted << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, wanted.str())
      << "If this is meant, run scripts/golden_update.sh and read the difference in " << path;
}

}  // namespace holdfast::test
