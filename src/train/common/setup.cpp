#include "src/train/common/setup.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_lock.hpp"
#include "src/config/adapters.hpp"
#include "src/config/shown.hpp"
#include "src/control/secret.hpp"
#include "src/train/common/agree.hpp"

namespace holdfast::train {
namespace {

/// One run at a time in a directory: the lock tells bare runs apart, the owner says that it is a job's. The
/// lock comes first: a job writes its owner.json and then looks whether anybody holds the lock.
void take_lock(const RunDir& dir) {
  static std::optional<files::Fd> lock;  // held until the process ends
  lock = lock_run(dir);
  if (!lock)
    throw Error(
        Exit::usage,
        fmt::format("the run directory {} belongs to a run that is still going on", dir.path.string()),
        "another process holds bare.lock", "Wait for it, or choose another run.dir?");
  if (files::exists_or_fail(dir.owner()))
    throw Error(Exit::usage,
                fmt::format("the run directory {} belongs to a submitted job", dir.path.string()),
                "there is an owner.json, and this rank was not started by that job's agents",
                "Continue it with holdfast submit, or choose another run.dir?");
}

}  // namespace

Setup read_setup(const Arguments& arguments, const Place& place) {
  Setup setup;
  setup.place = place;
  if (place.agent) {
    setup.dir = {place.agent->run_dir};
    setup.config = config::load(setup.dir.config()).config;
    setup.shape = config::model_of(setup.config);
  } else {
    if (arguments.job.empty())
      throw Error(Exit::usage, "holdfast-train needs a job file", "it was not started by an agent",
                  "holdfast-train job.toml");
    setup.config = config::load(arguments.job, arguments.sets).config;
    setup.shape = config::model_of(setup.config);
    if (!arguments.run_dir.empty()) setup.config.run.dir = arguments.run_dir;
    if (setup.config.run.dir.empty())
      throw Error(Exit::usage, "there is no run directory", "neither run.dir nor --run-dir is given",
                  "Add --run-dir DIR?");
    setup.dir = {std::filesystem::absolute(setup.config.run.dir)};
    // Whatever cluster the file names: the ranks are those that MPI has started.
    setup.config.cluster.ranks_per_node = place.ranks_per_node;
    setup.config.cluster.nodes = std::max(1, place.world / place.ranks_per_node);
  }
  config::check(setup.config, setup.shape);
  if (files::exists_or_fail(setup.dir.cluster()))
    setup.cluster = config::load_cluster(setup.dir.cluster().string());
  return setup;
}

void settle_arithmetic(Setup& setup, bool on_gpu) {
  setup.config = config::resolve_arithmetic(std::move(setup.config), on_gpu);
  config::check(setup.config, setup.shape);
  if (on_gpu) config::check_gpu(setup.config, setup.shape);
}

void claim_run_directory(Setup& setup, comm::Communicator& world) {
  if (setup.place.agent) return;
  together(world, world.rank() == 0, [&] {
    std::error_code failure;
    // A run that has checkpoints has their folder: where it is not seen, it is away, and would come back to
    // one that is taken.
    const bool has_some = std::filesystem::exists(setup.dir.durable(), failure) || failure;
    failure.clear();
    const bool made = !has_some && std::filesystem::create_directories(setup.dir.checkpoints(), failure);
    if (failure)
      throw system_error("cannot make the run directory " + setup.dir.path.string(), failure.value());
    files::close_folder(setup.dir.path);
    if (made) files::close_folder(setup.dir.checkpoints());
    take_lock(setup.dir);
    control::make_secret(setup.dir.secret());
    try {
      if (files::exists_or_fail(setup.dir.config())) setup.earlier = config::load(setup.dir.config()).config;
    } catch (const Error&) {  // of another version
    }
    files::replace_atomically(setup.dir.model(), config::to_toml(setup.shape));
    config::write_settings(setup.dir, setup.config);
  });
}

}  // namespace holdfast::train
