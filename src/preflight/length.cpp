#include "src/preflight/length.hpp"

#include <fmt/core.h>

#include <utility>

#include "src/config/mixture.hpp"
#include "src/data/epochs.hpp"
#include "src/data/sampler.hpp"
#include "src/preflight/tokens.hpp"

namespace holdfast::preflight {

std::optional<std::int64_t> samples_of_epoch(const config::RunConfig& config,
                                             const config::ModelShape& model) {
  const auto parts = config::mixture_of(config.data);
  const int sequence = config.train.sequence;
  if (parts.size() != 1 || sequence < 1) return {};
  return data::windows_of(open_for(parts.front().path, sequence, model.name, model.vocabulary), sequence);
}

std::int64_t steps_of_epochs(const config::RunConfig& config, std::int64_t samples) {
  const double epochs = config.train.epochs;
  const int batch = config.train.global_batch;
  if (const std::int64_t steps = data::steps_of_epochs(epochs, samples, batch); steps > 0) return steps;
  const std::string file = config::mixture_of(config.data).front().path;
  if (samples < batch)
    throw Error(Exit::impossible, fmt::format("the token file {} is smaller than one step", file),
                fmt::format("it has {} samples, and train.global_batch is {}", samples, batch),
                fmt::format("Set train.global_batch to {} or less, prepare more text, or set train.steps in "
                            "the place of train.epochs?",
                            samples));
  throw Error(Exit::impossible, fmt::format("train.epochs = {} is less than one step", epochs),
              fmt::format("it is {} of the {} samples of {}, and train.global_batch is {}",
                          data::samples_of_epochs(epochs, samples), samples, file, batch),
              "Set more epochs, or a smaller train.global_batch?");
}

config::RunConfig with_steps(config::RunConfig config, const config::ModelShape& model) {
  if (config.train.steps > 0 || config.train.epochs <= 0) return config;
  const auto samples = samples_of_epoch(config, model);
  if (!samples) throw no_tokens();
  config.train.steps = steps_of_epochs(config, *samples);
  return config;
}

}  // namespace holdfast::preflight
