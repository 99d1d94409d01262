#include "src/tools/text/small_file.hpp"

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/lfs_pointer.hpp"

namespace holdfast::text {
namespace fs = std::filesystem;
namespace {

constexpr std::uintmax_t max_bytes = 128 << 20;

}  // namespace

std::string read_small_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(Exit::usage, "cannot use tokenizer " + path.string(),
                error ? error.message() : "it is no regular file",
                "Give a tokenizer.model, a tokenizer.json, or the folder of one?");
  }
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) throw Error(Exit::usage, "cannot use tokenizer " + path.string(), error.message());
  if (bytes > max_bytes) {
    throw Error(Exit::usage, "cannot use tokenizer " + path.string(),
                "it has " + std::to_string(bytes) + " bytes; tokenizers are smaller");
  }
  std::string text = files::read_text(path);
  refuse_lfs_pointer(path, text);
  return text;
}

}  // namespace holdfast::text
