#include "src/train/engine/initial_weights.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"
#include "src/config/bind.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/state/state_digest.hpp"
#include "src/weights/adapter_files.hpp"

namespace holdfast::train {
namespace {

using checkpoint::State;
using weights::AdapterFiles;
using weights::ModelFiles;

/// Settings that the files' own description has otherwise: some change them on purpose, for longer texts.
void say_differences(const config::ModelShape& there, const config::ModelShape& here) {
  for (const auto& setting : config::model_settings())
    if (setting.key != "name" && setting.get(there) != setting.get(here))
      log::warn("{} was {} where the weights come from, and is {} in this run", setting.name(),
                config::spell(setting.get(there)), config::spell(setting.get(here)));
}

/// Opens what rank 0 has looked at and found good. A run may be making checkpoints while we look: the others
/// take over which one it was.
template <class Files, class Look>
Files open_together(const std::string& path, const char* setting, comm::Communicator& world, Look look) {
  std::optional<Files> files;
  const std::string asked_by = std::string(setting) + " names it";
  together(world, world.rank() == 0, [&] {
    files.emplace(path, asked_by);
    look(*files);
  });
  const std::string chosen = comm::broadcast_text(world, files ? files->path().string() : "", 0);
  together(world, world.rank() != 0, [&] { files.emplace(chosen, asked_by); });
  return std::move(*files);
}

/// That adapters which lie there are of the kind that the run trains, and on the weights that it has.
void require_adapters(const AdapterFiles& files, const Setup& setup, const std::string& base_digest) {
  weights::require_kind(files.contents(), setup.shape, setup.config.lora);
  const std::string& digest = files.facts().base_digest;
  if (!digest.empty() && digest != base_digest)
    throw Error(
        Exit::usage, fmt::format("the adapters of {} belong to another base", files.path().string()),
        fmt::format("they were trained on weights with digest {}, model.weights has {}", digest, base_digest),
        files.facts().base.empty() ? "" : "They were trained on " + files.facts().base);
}

/// The pieces of `state` that are weights.
State weights_in(const State& state) {
  State out{state.tensors, {}};
  for (const checkpoint::PieceView& piece : state.pieces)
    if (state.tensors[piece.tensor].name.starts_with(checkpoint::model_family)) out.pieces.push_back(piece);
  return out;
}

}  // namespace

ModelFiles open_weights(const Setup& setup, comm::Communicator& world) {
  return open_together<ModelFiles>(
      setup.config.model.weights, "model.weights", world, [&](const ModelFiles& files) {
        for (const std::string& name : files.require(setup.shape))
          log::info("the tensor {} of the weights files is not used by this model", name);
        if (files.shape()) say_differences(*files.shape(), setup.shape);
        log::info("the initial weights come from {}", files.description(setup.shape));
      });
}

void read_initial_weights(const Setup& setup, const StateViews& views, StateWindow& window,
                          comm::Communicator& world) {
  const auto begin = Clock::now();
  const ModelFiles files = open_weights(setup, world);
  std::int64_t bytes = 0;
  together(world, true, [&] {
    window.fill(weights_in(views.held), [&](const State& part) { bytes += files.read(part); });
  });
  const State owned = weights_in(views.owned);
  files.check(owned.tensors, digest_state(owned, window, world).tensors);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (world.rank() == 0)
    log::info("this rank read {} of initial weights in {}", size_text(bytes), duration_text(seconds));
}

void read_initial_adapters(const Setup& setup, const std::string& base_digest, const StateViews& views,
                           StateWindow& window, comm::Communicator& world) {
  const auto files = open_together<AdapterFiles>(
      setup.config.lora.weights, "lora.weights", world, [&](const AdapterFiles& found) {
        require_adapters(found, setup, base_digest);
        log::info("the initial adapters come from {}", found.path().string());
      });
  together(world, true,
           [&] { window.fill(weights_in(views.held), [&](const State& part) { files.read(part); }); });
}

}  // namespace holdfast::train
