#include "src/train/loop/token_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/mixture.hpp"
#include "src/data/epochs.hpp"
#include "src/preflight/length.hpp"
#include "src/preflight/tokens.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/engine/batch_reader.hpp"

namespace holdfast::train {
namespace {

data::TokenFile open_tokens(const Setup& setup, const std::string& path) {
  return checkpoint::patiently(patience_with_tokens(setup.config), [&] {
    return preflight::open_for(path, setup.config.train.sequence, setup.shape.name, setup.shape.vocabulary);
  });
}

/// The run keeps its length when its data have changed since it was planned; "": they make the same one.
std::string other_length(const config::RunConfig& c, const data::TokenFile& file) {
  if (c.train.epochs <= 0) return {};
  const std::int64_t windows = data::windows_of(file, c.train.sequence);
  if (data::steps_of_epochs(c.train.epochs, windows, c.train.global_batch) == c.train.steps) return {};
  return fmt::format("the data have changed since the run was planned: its {} steps are {:.4g} epochs now",
                     c.train.steps, data::epochs_of_steps(c.train.steps, windows, c.train.global_batch));
}

}  // namespace

void settle_length(Setup& setup) {
  setup.config = preflight::with_steps(std::move(setup.config), setup.shape);
}

TokenData open_token_data(const Setup& setup, comm::Communicator& world) {
  const auto& c = setup.config;
  std::vector<data::Source> sources;
  std::vector<std::string> paths;
  std::vector<HeldOut> held_out;
  std::int64_t vocabulary = 0;
  const auto parts = config::mixture_of(c.data);
  for (const config::MixturePart& part : parts) {
    sources.push_back({open_tokens(setup, part.path), part.weight});
    paths.push_back(part.path);
    vocabulary = std::max(vocabulary, sources.back().file.vocabulary());
  }
  if (sources.empty()) throw preflight::no_tokens();
  if (c.eval.every > 0) {
    const auto names = config::names_of_files(c.data.validation);
    for (std::size_t i = 0; i < names.size(); ++i)
      held_out.push_back({names[i], open_tokens(setup, c.data.validation[i])});
  }
  together(world, world.rank() == 0, [&] {
    std::vector<preflight::NamedFile> files;
    for (std::size_t i = 0; i < sources.size(); ++i) files.push_back({paths[i], &sources[i].file});
    for (std::size_t i = 0; i < held_out.size(); ++i)
      files.push_back({c.data.validation[i], &held_out[i].file});
    if (!c.data.other_tokenizer) preflight::require_one_tokenizer(files, c.model.weights);
    if (const std::string other = other_length(c, sources.front().file); !other.empty())
      log::warn("{}", other);
    if (vocabulary < setup.shape.vocabulary)
      log::warn("the token files use {} of the model's {} tokens", vocabulary, setup.shape.vocabulary);
  });
  return {{std::move(sources), c.train.sequence, c.data.shuffle_seed, c.data.boundaries},
          config::names_of_parts(parts),
          std::move(held_out)};
}

}  // namespace holdfast::train
