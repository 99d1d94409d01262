#include "launcher/job/run_history.hpp"

#include <fmt/format.h>

#include <optional>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/manifest.hpp"
#include "src/base/error.hpp"
#include "src/config/bind.hpp"
#include "src/config/load.hpp"
#include "src/config/numerics.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

/// The first difference between two models, or "".
std::string difference(const config::ModelShape& here, const config::ModelShape& there) {
  for (const auto& setting : config::model_settings())
    if (setting.key != "name" && setting.get(here) != setting.get(there))
      return fmt::format("{} is {} there and {} here", setting.name(), config::spell(setting.get(there)),
                         config::spell(setting.get(here)));
  return {};
}

/// The checkpoint that run.resume names.
checkpoint::Manifest named_checkpoint(const fs::path& path) {
  try {
    return checkpoint::read_manifest(path);
  } catch (const Error& error) {
    const auto steps = checkpoint::committed_steps(RunDir{path}.checkpoints());
    throw Error(
        Exit::usage, fmt::format("cannot resume from {}", path.string()), error.what(),
        steps.empty()
            ? "Resume from another checkpoint, or from auto?"
            : fmt::format("It is a run directory; name one of its checkpoints, for example {}?",
                          checkpoint::committed_path(RunDir{path}.checkpoints(), steps.front()).string()));
  }
}

/// The newest checkpoint of the run that can be read.
std::optional<std::pair<fs::path, checkpoint::Manifest>> own_checkpoint(const RunDir& run) {
  for (const std::int64_t step : checkpoint::committed_steps(run.checkpoints())) {
    const fs::path path = checkpoint::committed_path(run.checkpoints(), step);
    try {
      return std::pair(path, checkpoint::read_manifest(path));
    } catch (const Error&) {  // the ranks choose another one
    }
  }
  return {};
}

}  // namespace

config::RunConfig with_lanes_of(const RunDir& run, config::RunConfig config) {
  if (config.train.lanes != 0 || run.path.empty() || !fs::exists(run.config())) return config;
  try {
    const config::Train began = config::load(run.config()).config.train;
    if (config::micro_batches(began) == config::micro_batches(config.train)) config.train.lanes = began.lanes;
  } catch (const Error&) {  // settings of another version; if lanes differ, the ranks refuse
  }
  return config;
}

void check_model(const RunDir& run, const config::ModelShape& model) {
  if (run.path.empty() || !fs::exists(run.model())) return;
  const std::string different = difference(model, config::load_model(run.model().string()));
  if (!different.empty())
    throw Error(Exit::usage, "the run directory " + run.path.string() + " is the run of another model",
                different, "Choose another run.dir?");
}

void check_checkpoint(const RunDir& run, const config::RunConfig& config, const config::ModelShape& model) {
  const std::string& resume = config.run.resume;
  if (resume == "none") return;
  if (resume != "auto" && !fs::exists(resume))
    throw Error(Exit::usage, "there is no checkpoint " + resume, "run.resume names it",
                "Use auto, none or the path of a checkpoint?");
  if (!config::own_trainer(config.rank)) return;  // another program checks its own checkpoints
  const auto found = resume != "auto" ? std::optional(std::pair(fs::path(resume), named_checkpoint(resume)))
                                      : (run.path.empty() ? std::nullopt : own_checkpoint(run));
  if (!found) return;
  const auto& [path, manifest] = *found;
  const std::string other = difference(model, config::parse_model(manifest.facts.model_toml, path.string()));
  if (!other.empty())
    throw Error(Exit::usage, fmt::format("the checkpoint {} belongs to another model", path.string()), other,
                "Choose another run.dir or model.file?");
  if (manifest.facts.numerics == checkpoint::imported_numerics || config.run.other_numerics == "continue")
    return;
  const std::string changed = config::arithmetic_difference(config::arithmetic_in(manifest.facts.numerics),
                                                            config::arithmetic_of(config));
  if (!changed.empty()) throw config::other_arithmetic(path.string(), changed);
}

}  // namespace holdfast::launcher
