#include "src/train/initial_weights.hpp"

#include <fmt/core.h>

#include <chrono>
#include <optional>

#include "checkpoint/catalog.hpp"
#include "checkpoint/export.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/safetensors_model.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/bind.hpp"
#include "src/config/hf_config.hpp"
#include "src/train/agree.hpp"
#include "src/train/state_digest.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
namespace safetensors = checkpoint::safetensors;
using checkpoint::State;

/// Rank 0's choice, which the others take over: a run may be making checkpoints while we look.
struct Choice {
  bool is_checkpoint = false;
  std::string path;
};

bool has_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The checkpoint that `path` is, or the newest sound one of the run or folder that it is.
std::optional<fs::path> find_checkpoint(const fs::path& path) {
  if (has_file(path / checkpoint::manifest_file_name)) return path;
  const fs::path inside = RunDir{path}.checkpoints();
  const fs::path folder = has_file(inside) ? inside : path;
  if (checkpoint::committed_steps(folder).empty()) {
    if (folder == path) return {};
    throw Error(Exit::usage, fmt::format("the run {} has no checkpoint", path.string()),
                "model.weights names it", "Wait for its first one?");
  }
  const auto newest = checkpoint::newest_sound(folder);
  if (!newest)
    throw Error(Exit::runtime, "no sound checkpoint in " + folder.string(), "model.weights names it");
  return newest->path;
}

/// Settings that the files' own description has otherwise: some change them on purpose, for longer texts.
void say_differences(const config::ModelShape& there, const config::ModelShape& here) {
  for (const auto& setting : config::model_settings())
    if (setting.key != "name" && setting.get(there) != setting.get(here))
      log::warn("{} was {} where the weights come from, and is {} in this run", setting.name(),
                config::spell(setting.get(there)), config::spell(setting.get(here)));
}

std::vector<checkpoint::LogicalTensor> model_of(const config::ModelShape& shape) {
  std::vector<checkpoint::LogicalTensor> out;
  for (const config::TensorSpec& spec : config::base_tensors_of(shape))
    out.push_back({spec.name, spec.rows, spec.cols});
  return out;
}

/// The pieces of `state` that are weights.
State weights_in(const State& state) {
  State out{state.tensors, {}};
  for (const checkpoint::PieceView& piece : state.pieces)
    if (state.tensors[static_cast<std::size_t>(piece.tensor)].name.starts_with(checkpoint::model_family))
      out.pieces.push_back(piece);
  return out;
}

/// On rank 0: what the weights are, if they are those of this model.
Choice choose(const Setup& setup) {
  const fs::path path = setup.config.model.weights;
  if (!has_file(path))
    throw Error(Exit::usage, "there are no weights at " + path.string(), "model.weights names them");
  if (const auto step_dir = find_checkpoint(path)) {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(*step_dir);
    say_differences(config::parse_model(manifest.facts.model_toml, step_dir->string()), setup.shape);
    log::info("initial weights: checkpoint {}, step {}, state {}", step_dir->string(), manifest.point.step,
              checkpoint::digest_text(manifest.state_digest));
    return {true, step_dir->string()};
  }
  const safetensors::Source source(path);
  const auto model = model_of(setup.shape);
  for (const std::string& name : safetensors::require_model(source, model, setup.shape.tied_embeddings))
    log::info("not needed of the weights: {}", name);
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path, ignored) ? path : fs::absolute(path).parent_path();
  if (const auto config = config::find_hf_config(folder))
    say_differences(config::load_hf_config(*config).shape, setup.shape);
  log::info("initial weights: {}, {} files, {} bytes, {}", path.string(), source.files(),
            source.tensor_bytes(), safetensors::imported_identity(source, model));
  return {false, path.string()};
}

}  // namespace

WeightFiles::WeightFiles(const Setup& setup, comm::Communicator& world) {
  Choice choice;
  together(world, world.rank() == 0, [&] { choice = choose(setup); });
  choice.is_checkpoint = comm::broadcast_text(world, choice.is_checkpoint ? "checkpoint" : "", 0) != "";
  path_ = comm::broadcast_text(world, choice.path, 0);
  together(world, true, [&] {
    if (choice.is_checkpoint)
      manifest_ = checkpoint::read_manifest(path_);
    else
      source_.emplace(path_);
  });
}

std::int64_t WeightFiles::read(const State& weights) const {
  if (manifest_) return checkpoint::load(path_, weights).bytes_read;
  std::vector<safetensors::Wanted> wanted;
  for (const checkpoint::PieceView& piece : weights.pieces) {
    const auto& tensor = weights.tensors[static_cast<std::size_t>(piece.tensor)];
    wanted.push_back({tensor.name.substr(checkpoint::model_family.size()),
                      piece.first,
                      {static_cast<float*>(piece.data), static_cast<std::size_t>(piece.count)}});
  }
  return source_->read(wanted);
}

void WeightFiles::check(std::span<const checkpoint::LogicalTensor> tensors,
                        std::span<const std::uint64_t> digests) const {
  if (!manifest_) return;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t].name.starts_with(checkpoint::model_family)) continue;
    for (std::size_t m = 0; m < manifest_->tensors.size(); ++m)
      if (manifest_->tensors[m].name == tensors[t].name && manifest_->digests[m] != digests[t])
        throw Error(
            Exit::runtime, fmt::format("{} does not hold the weights that it names", path_),
            fmt::format("{} has digest {}, should be {}", tensors[t].name,
                        checkpoint::digest_text(digests[t]), checkpoint::digest_text(manifest_->digests[m])));
  }
}

void read_initial_weights(const Setup& setup, const StateViews& views, comm::Communicator& world) {
  const auto begin = Clock::now();
  const WeightFiles files(setup, world);
  std::int64_t bytes = 0;
  together(world, true, [&] { bytes = files.read(weights_in(views.held)); });
  const State owned = weights_in(views.owned);
  files.check(owned.tensors, digest_state(owned, world).tensors);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (world.rank() == 0)
    log::info("initial weights: read in {:.2f} s, {:.1f} MB by this rank", seconds,
              static_cast<double>(bytes) / 1e6);
}

}  // namespace holdfast::train
