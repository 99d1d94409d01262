#include "launcher/job/run_dir_setup.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "launcher/job/run_owner.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/bind.hpp"
#include "src/config/load.hpp"
#include "src/config/mixture.hpp"
#include "src/control/secret.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

bool is_own_trainer(const config::RunConfig& config) {
  return !config.rank.command.empty() && fs::path(config.rank.command.front()).filename() == "holdfast-train";
}

/// What tells two models apart, or "".
std::string difference(const config::ModelShape& here, const config::ModelShape& there) {
  for (const auto& setting : config::model_settings())
    if (setting.key != "name" && setting.get(here) != setting.get(there))
      return fmt::format("{} is {} there and {} here", setting.name(), config::spell(setting.get(there)),
                         config::spell(setting.get(here)));
  return {};
}

void check_model(const RunDir& run, const config::ModelShape& model) {
  if (!fs::exists(run.model())) return;
  const std::string different = difference(model, config::load_model(run.model().string()));
  if (!different.empty())
    throw Error(Exit::usage, "the run directory " + run.path.string() + " is the run of another model",
                different, "Choose another run.dir?");
}

/// A script of one's own names the job file again when its job is requeued.
bool comes_back(const RunDir& run, std::optional<slurm::JobId> job) {
  if (!job) return false;
  const auto owner = read_owner(run);
  return owner && owner->job == job;
}

void check_resume(const RunDir& run, const config::RunConfig& config, std::optional<slurm::JobId> job) {
  const std::string& resume = config.run.resume;
  if (resume == "none" && !files::list(run.checkpoints()).empty() && !comes_back(run, job))
    throw Error(Exit::usage, "the run directory " + run.path.string() + " holds checkpoints",
                "run.resume is none, which would train over them", "Choose another run.dir, or resume=auto?");
  if (resume != "none" && resume != "auto" && !fs::exists(resume))
    throw Error(Exit::usage, "there is no checkpoint " + resume, "run.resume names it",
                "Use auto, none or the path of a checkpoint?");
}

void check_weights(const config::RunConfig& config) {
  if (!is_own_trainer(config)) return;
  if (const auto& path = config.model.weights; !path.empty() && !fs::exists(path))
    throw Error(Exit::usage, "there are no weights at " + path, "model.weights names them",
                "Name a Hugging Face folder, a safetensors file, a checkpoint or a run?");
  if (const auto& path = config.lora.weights; !path.empty() && !fs::exists(path))
    throw Error(Exit::usage, "there are no adapters at " + path, "lora.weights names them",
                "Name a folder of PEFT, a checkpoint or a run?");
}

void check_tokens(const config::RunConfig& config) {
  if (!is_own_trainer(config)) return;
  const auto parts = config::mixture_of(config.data);
  if (parts.empty())
    throw Error(Exit::usage, "data.tokens is not set", "holdfast-train needs a token file",
                "Make one with 'holdfast data prepare'?");
  for (const config::MixturePart& part : parts) {
    std::error_code error;
    const auto bytes = fs::file_size(part.path, error);
    if (error)
      throw Error(Exit::usage, "cannot use the token file " + part.path, error.message(),
                  "Make one with 'holdfast data prepare'?");
    if (bytes == 0)
      throw Error(Exit::usage, "the token file " + part.path + " is empty", "",
                  "Make it again with 'holdfast data prepare'?");
  }
}

void create_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  if (errno != EEXIST) throw system_error("cannot create " + folder.string(), errno);
  if (!fs::is_directory(folder))
    throw Error(Exit::usage, "cannot create " + folder.string(), "a file of that name is there");
}

}  // namespace

RunDir run_dir_of(const config::RunConfig& config) {
  if (config.run.dir.empty())
    throw Error(Exit::usage, "run.dir is not set", "a run needs a directory on the shared file system",
                "Give it with --set run.dir=PATH?");
  std::error_code error;
  fs::path path = fs::weakly_canonical(fs::absolute(config.run.dir), error);
  if (error) throw Error(Exit::usage, "cannot use run.dir " + config.run.dir, error.message());
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
  make_absolute(config.data.tokens), make_absolute(config.data.validation);
  make_absolute(config.slurm.bundle);
  make_absolute(config.model.weights), make_absolute(config.lora.weights);
  if (config.run.resume != "auto" && config.run.resume != "none") make_absolute(config.run.resume);
  if (!config.rank.command.empty() && config.rank.command.front().find('/') != std::string::npos)
    make_absolute(config.rank.command.front());
  return config;
}

void check_run_dir(const RunDir& run, const RunFiles& files, std::optional<slurm::JobId> job) {
  check_tokens(files.config);
  check_weights(files.config);
  const auto status = fs::status(run.path);
  if (fs::exists(status) && !fs::is_directory(status))
    throw Error(Exit::usage, "run.dir " + run.path.string() + " is not a directory", "",
                "Choose another run.dir?");
  if (fs::exists(status) && !files::list(run.path).empty() && !fs::exists(run.config()) &&
      !fs::exists(run.owner()))
    throw Error(Exit::usage, "run.dir " + run.path.string() + " is not a run directory",
                "it holds other files and no config.toml", "Choose another run.dir?");
  check_model(run, files.model);
  check_resume(run, files.config, job);
}

void create_folders(const RunDir& run) {
  std::error_code error;
  fs::create_directories(run.path.parent_path(), error);
  if (error) throw Error(Exit::runtime, "cannot create " + run.path.parent_path().string(), error.message());
  create_folder(run.path);
  // An empty folder of the user's may have been open to others; the secret will lie here.
  if (::chmod(run.path.c_str(), 0700) != 0)
    throw system_error("cannot make " + run.path.string() + " private", errno);
  for (const auto& folder : {run.epochs(), run.events(), run.checkpoints(), run.logs()})
    create_folder(folder);
}

void write_run_files(const RunDir& run, const RunFiles& files) {
  files::replace_atomically(run.model(), config::to_toml(files.model));
  files::replace_atomically(run.cluster(), config::to_toml(files.facts));
  files::replace_atomically(run.plan(), files.plan);
  files::replace_atomically(run.script(), files.script);
  // The secret stays over resubmissions: agents of a job that is just ending still know it.
  if (!fs::exists(run.secret()))
    files::replace_atomically(run.secret(), control::to_hex(control::random_key()) + "\n");
  // Last: with config.toml there, it is a run directory.
  files::replace_atomically(run.config(), config::to_toml(files.config));
}

}  // namespace holdfast::launcher
