#include "launcher/job/run_dir_setup.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/job/run_owner.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/own_run.hpp"
#include "src/config/load.hpp"
#include "src/config/mixture.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/shown.hpp"
#include "src/control/secret.hpp"
#include "src/preflight/preflight.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

void create_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0750) == 0) return;
  if (errno != EEXIST) throw system_error("cannot create " + folder.string(), errno);
  if (!fs::is_directory(folder))
    throw Error(Exit::usage, "cannot create " + folder.string(), "a file of that name exists");
}

void close_if_own(const fs::path& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid())
    files::close_folder(folder);
}

/// A job's name may be any text.
std::string file_name_of(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  if (name.empty() || name.front() == '.') name.insert(0, 1, '-');
  return name;
}

}  // namespace

RunDir run_dir_of(const config::RunConfig& config) {
  const fs::path chosen = config.run.dir.empty() ? fs::path(runs_folder) / file_name_of(config.run.name)
                                                 : fs::path(config.run.dir);
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(chosen), error);
  if (error) throw Error(Exit::usage, "cannot use run.dir " + chosen.string(), error.message());
  if (!path.has_filename()) path = path.parent_path();  // "runs/a/"
  return {path};
}

config::RunConfig with_absolute_paths(config::RunConfig config, const RunDir& run) {
  const auto make_absolute = [](std::string& path) {
    if (!path.empty()) path = fs::absolute(path).lexically_normal().string();
  };
  config.run.dir = run.path.string();
  config.model.file = run.model().string();
  config.cluster.file = run.cluster().string();
  std::vector<std::string> mixture;
  for (config::MixturePart part : config::mixture_of(config.data))
    make_absolute(part.path), mixture.push_back(config::text_of(part));
  if (!config.data.mixture.empty()) config.data.mixture = mixture;
  make_absolute(config.data.tokens);
  std::ranges::for_each(config.data.validation, make_absolute);
  make_absolute(config.slurm.bundle);
  make_absolute(config.model.weights), make_absolute(config.lora.weights);
  // Other names than paths are those of a registry.
  if (auto& image = config.container.image; image.starts_with('.') || fs::is_regular_file(image))
    make_absolute(image);
  if (config.run.resume != "auto" && config.run.resume != "none") make_absolute(config.run.resume);
  std::ranges::for_each(config.checkpoint.files_in, make_absolute);
  if (config.rank.directory.empty() && !config::promises_of(config.rank).trains_as_set)
    config.rank.directory = ".";
  make_absolute(config.rank.directory);
  if (!config.rank.command.empty() && config.rank.command.front().find('/') != std::string::npos)
    make_absolute(config.rank.command.front());
  return config;
}

bool was_requeued(const RunDir& run, std::optional<slurm::JobId> job) {
  if (!job) return false;
  const auto owner = read_owner(run);
  return owner && owner->job == job;
}

void check_run_dir(const RunDir& run, const RunFiles& files, std::optional<slurm::JobId> job) {
  preflight::Problems problems;
  preflight::look_at({files.config, files.model, files.facts, run, was_requeued(run, job)}, problems);
  problems.refuse();
}

void create_folders(const RunDir& run) {
  std::error_code error;
  fs::create_directories(run.path.parent_path(), error);
  if (error) throw Error(Exit::runtime, "cannot create " + run.path.parent_path().string(), error.message());
  create_folder(run.path);
  files::close_folder(run.path);  // one that was there may be open to others
  for (const auto& folder : {run.terms(), run.events(), run.checkpoints(), run.logs()}) create_folder(folder);
  // Versions before have left some open to the group, by its umask.
  for (const auto& folder : {run.configs(), run.terms(), run.events(), run.checkpoints(), run.logs()})
    close_if_own(folder);
  require_own_run(run);
}

void write_run_files(const RunDir& run, const RunFiles& files) {
  files::replace_atomically(run.model(), config::to_toml(files.model));
  files::replace_atomically(run.cluster(), config::to_toml(files.facts));
  files::replace_atomically(run.plan(), files.plan);
  if (!files.script.empty()) files::replace_atomically(run.script(), files.script);  // a local run has none
  // The secret is kept over resubmissions: agents of a job that is just ending still use it.
  control::make_secret(run.secret());
  config::write_settings(run, files.config);  // last: a folder with config.toml is a run directory
}

}  // namespace holdfast::launcher
