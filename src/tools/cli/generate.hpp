#pragma once
// `holdfast generate`: what a model writes.
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "src/tools/cli/open_model.hpp"
#include "src/tools/infer/sampler.hpp"

namespace holdfast::tool {

struct GenerateOrder {
  ModelOrder model;
  std::filesystem::path tokenizer, file;
  std::vector<std::string> prompts;  ///< these, and those of `file`; without any, what comes from `in`
  bool chat = false, json = false;
  std::string system, dtype = "fp32";
  std::int64_t max_tokens = 256;
  int batch = 8;
  infer::Sampling sampling;
};

/// Answers on `out`; warnings and speed on stderr. Throws Error.
int generate(const GenerateOrder& order, std::istream& in, std::ostream& out);

}  // namespace holdfast::tool
