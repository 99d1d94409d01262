#include "src/preflight/tokens.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "src/base/files.hpp"
#include "src/config/mixture.hpp"
#include "src/data/sampler.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/preflight/checks.hpp"
#include "src/preflight/paths.hpp"

namespace holdfast::preflight {
namespace {

namespace fs = std::filesystem;
using data::Hash128;
using data::TokenFile;

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
  for (const fs::path& file : data::tokenizer_files(folder))
    out.identities.push_back(data::hash_bytes(files::read_text(file)));
  out.whose = folder.string();
  return out;
}

}  // namespace

Error no_tokens() {
  return {Exit::usage, "there is no token file", "neither data.tokens nor data.mixture is set",
          "Make one with 'holdfast data prepare', and set data.tokens to it?"};
}

TokenFile open_for(const std::string& path, int sequence, const std::string& model, std::int64_t vocabulary) {
  auto file = TokenFile::open(path, sequence);  // windows_of() asks for one more of a file without rows
  if (file.vocabulary() > vocabulary)
    throw Error(Exit::usage, fmt::format("the token file {} has another vocabulary than the model", path),
                fmt::format("{} tokens; model {} knows {}", file.vocabulary(), model, vocabulary),
                "Prepare the data with the model's tokenizer, or set vocabulary in the model file?");
  data::windows_of(file, sequence, "the token file " + path);  // refuses
  return file;
}

void require_one_tokenizer(const std::vector<NamedFile>& files, const std::string& weights) {
  Reference reference = tokenizer_of(weights);
  for (const auto& [path, file] : files) {
    const Hash128 identity = file->header().tokenizer;
    if (identity == Hash128{}) continue;  // it does not say
    if (reference.identities.empty()) reference = {path, {identity}};
    if (!reference.has(identity))
      throw Error(Exit::usage,
                  fmt::format("the token file {} was made by another tokenizer than that of {}", path,
                              reference.whose),
                  fmt::format("they have the hashes {} and {}", data::hex(identity),
                              data::hex(reference.identities.front())),
                  "Prepare it again, or set data.other_tokenizer=true if they make the same tokens?");
  }
}

void check_tokens(const Subject& subject, Problems& problems) {
  const config::RunConfig& config = subject.config;
  std::vector<std::string> paths;
  for (const config::MixturePart& part : config::mixture_of(config.data)) paths.push_back(part.path);
  if (paths.empty()) problems.add_of_this_machine(no_tokens());
  if (config.eval.every > 0) std::ranges::copy(config.data.validation, std::back_inserter(paths));
  std::vector<std::pair<std::string, TokenFile>> found;
  for (const std::string& path : paths) {
    if (const std::string why = why_absent(path); !why.empty()) {
      problems.add_of_this_machine(
          {Exit::usage, "cannot use the token file " + path, why, "Make one with 'holdfast data prepare'?"});
      continue;
    }
    if (config.train.sequence < 1) continue;
    problems.look([&] {
      found.emplace_back(path,
                         open_for(path, config.train.sequence, subject.model.name, subject.model.vocabulary));
    });
  }
  if (config.data.other_tokenizer) return;
  std::vector<NamedFile> files;
  for (const auto& [path, file] : found) files.push_back({path, &file});
  require_one_tokenizer(files, config.model.weights);
}

}  // namespace holdfast::preflight
