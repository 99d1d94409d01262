#pragma once
// `data show`: what a token file holds, and what its card says of it.
#include <filesystem>

namespace holdfast::tool {

struct ShowOptions {
  std::filesystem::path file;
  bool json = false, verify = false;
};

void run_show(const ShowOptions& options);

}  // namespace holdfast::tool
