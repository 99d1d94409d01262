#include "src/data/tokenizer_files.hpp"

namespace holdfast::data {

namespace fs = std::filesystem;

std::vector<fs::path> tokenizer_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::is_regular_file(folder / name, ignored)) files.push_back(folder / name);
  return files;
}

}  // namespace holdfast::data
