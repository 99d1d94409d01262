#include "src/data/token_checks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/data/sampler.hpp"
#include "src/data/tokenizer_files.hpp"

namespace holdfast::data {
namespace {

namespace fs = std::filesystem;

/// Tokenizers that count as one, and whose they are.
struct Reference {
  std::string whose;
  std::vector<Hash128> identities;
  bool has(const Hash128& identity) const {
    return std::ranges::find(identities, identity) != identities.end();
  }
};

/// Those beside the weights, if these lie in such a folder: tokenizer.json and tokenizer.model are two forms
/// of one. Token files name the hash of the file that they were made with.
Reference tokenizer_of(const std::string& weights) {
  Reference out;
  if (weights.empty()) return out;
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(weights, ignored) ? fs::path(weights) : fs::path(weights).parent_path();
  for (const fs::path& file : tokenizer_files(folder))
    out.identities.push_back(hash_bytes(files::read_text(file)));
  out.whose = folder.string();
  return out;
}

}  // namespace

TokenFile open_for(const std::string& path, int sequence, const std::string& model, std::int64_t vocabulary) {
  auto file = TokenFile::open(path, sequence);  // windows_of() asks for one more of a file without rows
  if (file.vocabulary() > vocabulary)
    throw Error(Exit::usage, fmt::format("the token file {} has another vocabulary than the model", path),
                fmt::format("{} tokens; model {} knows {}", file.vocabulary(), model, vocabulary),
                "Prepare the data with the model's tokenizer, or set vocabulary in the model file?");
  windows_of(file, sequence);  // refuses
  return file;
}

void require_one_tokenizer(const std::vector<NamedFile>& files, const std::string& weights) {
  Reference reference = tokenizer_of(weights);
  for (const auto& [path, file] : files) {
    const Hash128 identity = file->header().tokenizer;
    if (identity == Hash128{}) continue;  // it does not say
    if (reference.identities.empty()) reference = {path, {identity}};
    if (!reference.has(identity))
      throw Error(
          Exit::usage,
          fmt::format("the token file {} was made by another tokenizer than that of {}", path,
                      reference.whose),
          fmt::format("they have the hashes {} and {}", hex(identity), hex(reference.identities.front())),
          "Prepare it again, or set data.other_tokenizer=true if they make the same tokens?");
  }
}

}  // namespace holdfast::data
