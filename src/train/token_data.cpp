#include "src/train/token_data.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/config/mixture.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/train/agree.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;

data::TokenFile open_tokens(const Setup& setup, const std::string& path) {
  auto file = data::TokenFile::open(path, std::int64_t{setup.config.train.sequence} + 1);
  if (file.vocabulary() > setup.shape.vocabulary)
    throw Error(Exit::usage, fmt::format("the token file {} has another vocabulary than the model", path),
                fmt::format("{} tokens; model {} knows {}", file.vocabulary(), setup.shape.name,
                            setup.shape.vocabulary),
                "Prepare the data with the model's tokenizer, or set vocabulary in the model file?");
  return file;
}

/// Tokenizers that count as one, and whose they are.
struct Reference {
  std::string whose;
  std::vector<data::Hash128> identities;
  bool has(const data::Hash128& identity) const {
    return std::ranges::find(identities, identity) != identities.end();
  }
};

/// Those beside the weights, if these lie in such a folder: tokenizer.json and tokenizer.model are two forms
/// of one. Token files name the hash of the file that they were made with.
Reference tokenizer_of(const config::Model& model) {
  Reference out;
  if (model.weights.empty()) return out;
  std::error_code ignored;
  const fs::path weights = model.weights,
                 folder = fs::is_directory(weights, ignored) ? weights : weights.parent_path();
  for (const fs::path& file : data::tokenizer_files(folder))
    out.identities.push_back(data::hash_bytes(files::read_text(file)));
  out.whose = folder.string();
  return out;
}

/// `files`: with their paths. A token means something to one tokenizer only: the wrong one trains on noise.
void require_one_tokenizer(const config::RunConfig& config,
                           const std::vector<std::pair<std::string, const data::TokenFile*>>& files) {
  if (config.data.other_tokenizer) return;
  Reference reference = tokenizer_of(config.model);
  for (const auto& [path, file] : files) {
    const data::Hash128 identity = file->header().tokenizer;
    if (identity == data::Hash128{}) continue;  // it does not say
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

}  // namespace

TokenData open_token_data(const Setup& setup, comm::Communicator& world) {
  const auto& c = setup.config;
  std::vector<data::Source> sources;
  std::vector<std::string> paths;
  std::optional<data::TokenFile> held_out;
  std::int64_t vocabulary = 0;
  for (const config::MixturePart& part : config::mixture_of(c.data)) {
    sources.push_back({open_tokens(setup, part.path), part.weight});
    paths.push_back(part.path);
    vocabulary = std::max(vocabulary, sources.back().file.vocabulary());
  }
  if (sources.empty())
    throw Error(Exit::usage, "there is no token file", "neither data.tokens nor data.mixture is set",
                "Make one with holdfast data prepare?");
  if (c.eval.every > 0) held_out = open_tokens(setup, c.data.validation);
  together(world, world.rank() == 0, [&] {
    std::vector<std::pair<std::string, const data::TokenFile*>> files;
    for (std::size_t i = 0; i < sources.size(); ++i) files.emplace_back(paths[i], &sources[i].file);
    if (held_out) files.emplace_back(c.data.validation, &*held_out);
    require_one_tokenizer(c, files);
    if (vocabulary < setup.shape.vocabulary)
      log::warn("the token files use {} of the model's {} tokens", vocabulary, setup.shape.vocabulary);
  });
  return {{std::move(sources), c.train.sequence, c.data.shuffle_seed, c.data.boundaries},
          std::move(held_out)};
}

}  // namespace holdfast::train
