#pragma once
// `holdfast eval`: the loss of a model on a token file.
#include <filesystem>
#include <iosfwd>
#include <string>

#include "src/tools/cli/open_model.hpp"

namespace holdfast::tool {

/// 0 and "": as the run of the checkpoint has it.
struct EvalOrder {
  ModelOrder model;
  std::filesystem::path tokens;
  int sequence = 0, micro_batch = 0;
  std::int64_t samples = 0;  ///< 0: all
  std::string dtype;
  bool json = false;
};

/// Throws Error.
int evaluate(const EvalOrder& order, std::ostream& out);

}  // namespace holdfast::tool
