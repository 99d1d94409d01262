// An image is used in this order: take_container_options() moves pyxis's options from sbatch's to
// [container]; check_image() and check_runtime() refuse, before the job starts, what would keep agents from
// starting in it; mounts_of() collects in the job what must be seen from inside; and run_in_image() makes a
// step of agents one in the image, by options of srun (pyxis) or by a command before the agent's (Apptainer).
// Without container.image none of the last four does anything.
//
// Mounts keeps the outermost of the paths, each at its own place in the image. What is absent is left out,
// since a mount that fails would keep every agent from starting. A file is mounted with its folder, or alone
// where the folder would hide one of the image (hides_the_image()); for a link, what it names is mounted,
// too. Since commas and colons separate mounts, check_image() refuses a run directory and inputs with one in
// their paths.
#include "launcher/job/container.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "slurm/batch_script.hpp"
#include "slurm/site.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/bind.hpp"
#include "src/config/mixture.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

using config::ContainerRuntime;

constexpr std::chrono::milliseconds help_limit{10000};

/// A folder of the node that would hide what the image has there.
bool hides_the_image(const fs::path& folder) {
  static const std::set<fs::path> names = {"/",     "/bin", "/dev",  "/etc", "/lib", "/lib64",     "/opt",
                                           "/proc", "/run", "/sbin", "/sys", "/usr", "/usr/local", "/var"};
  return names.contains(folder);
}

fs::path installation_of(const fs::path& program) { return program.parent_path().parent_path(); }

bool is_option_of_pyxis(const std::string& option) {
  return option.starts_with("--container-") || option.starts_with("--no-container-");
}

void add_listed(std::vector<std::string>& out, const std::string& list) {
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) out.push_back(entry);
}

/// Without a slash at its end.
fs::path plain(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

class Mounts {
 public:
  /// Left out when it is not there: mounting it would fail, and nobody would start.
  void add(const fs::path& path) {
    std::error_code unknown;
    if (fs::exists(path, unknown)) paths_.push_back(plain(path));
  }
  /// A file, with those that lie beside it, and with the one that a link names.
  void add_file(const fs::path& file) {
    std::error_code unknown;
    const fs::path target = fs::canonical(file, unknown);
    for (const fs::path& place : {file, target})
      if (!place.empty()) add(hides_the_image(place.parent_path()) ? place : place.parent_path());
  }
  /// A folder, and what its links name: those of Hugging Face's cache lead out of it. Or a file among others.
  /// The lease on a checkpoint lies beside it.
  void add_tree(const fs::path& path) {
    std::error_code unknown;
    if (path.empty() || !fs::exists(path, unknown)) return;
    const fs::path folder = fs::is_directory(path, unknown) ? plain(path) : path.parent_path();
    const bool of_a_run = folder.parent_path().filename() == RunDir().checkpoints().filename();
    add(of_a_run ? folder.parent_path() : folder);
    for (const std::string& name : files::list(folder))
      if (fs::is_symlink(folder / name, unknown)) add_file(folder / name);
  }

  /// Each once, without those that lie below another.
  std::vector<fs::path> outermost() const {
    std::vector<fs::path> out;
    const auto covers = [](const fs::path& outer, const fs::path& inner) {
      return (inner.string() + "/").starts_with(outer.string() + "/");
    };
    for (const auto& path : paths_) {
      if (std::ranges::any_of(out, [&](const auto& outer) { return covers(outer, path); })) continue;
      std::erase_if(out, [&](const auto& inner) { return covers(path, inner); });
      out.push_back(path);
    }
    return out;
  }

 private:
  std::vector<fs::path> paths_;
};

void check_mountable(const char* what, const fs::path& path) {
  if (path.native().find_first_of(",:") != std::string::npos)
    throw Error(Exit::usage, fmt::format("{} cannot be mounted into the image: {}", what, path.string()),
                "a comma or a colon in a path separates mounts", "Choose another path?");
}

/// Of the settings, by their names.
std::vector<std::pair<const char*, std::string>> inputs_of(const config::RunConfig& config) {
  std::vector<std::pair<const char*, std::string>> out;
  for (const auto& part : config::mixture_of(config.data)) out.emplace_back("a token file", part.path);
  for (const std::string& path : config.data.validation) out.emplace_back("data.validation", path);
  out.emplace_back("model.weights", config.model.weights);
  out.emplace_back("lora.weights", config.lora.weights);
  if (config.run.resume != "auto" && config.run.resume != "none")
    out.emplace_back("run.resume", config.run.resume);
  return out;
}

void check_installation(const config::RunConfig& config, const fs::path& program) {
  if (!config.slurm.bundle.empty()) return;
  const fs::path root = installation_of(program);
  check_mountable("the folder of Holdfast", root);
  if (hides_the_image(root))
    throw Error(Exit::usage, "Holdfast cannot be brought into the image from where it is installed",
                fmt::format("{} would hide the image's own {}", root.string(), root.string()),
                "Set slurm.bundle, or install a bundle into a folder of its own?");
}

/// A file, by the spelling of its name; nothing for an image of a registry.
fs::path image_file(const config::Container& container) {
  return container.image.starts_with('/') ? fs::path(container.image) : fs::path();
}

std::string workdir_of(const config::RunConfig& config) {
  return config.container.workdir.empty() ? config.run.dir : config.container.workdir;
}

std::vector<std::string> options_of_pyxis(const config::RunConfig& config,
                                          const std::vector<std::string>& mounts) {
  const auto& container = config.container;
  std::vector<std::string> options = {"--container-image=" + container.image,
                                      fmt::format("--container-mounts={}", fmt::join(mounts, ",")),
                                      "--container-workdir=" + workdir_of(config)};
  if (container.writable) options.emplace_back("--container-writable");
  options.insert(options.end(), container.extra.begin(), container.extra.end());
  return options;
}

std::vector<std::string> command_of_apptainer(const config::RunConfig& config,
                                              const std::vector<std::string>& mounts, bool gpus) {
  const auto& container = config.container;
  std::vector<std::string> command = {"apptainer", "exec", fmt::format("--bind={}", fmt::join(mounts, ",")),
                                      "--pwd=" + workdir_of(config)};
  if (container.writable) command.emplace_back("--writable-tmpfs");
  if (gpus) command.emplace_back("--nv");  // the driver's libraries
  command.insert(command.end(), container.extra.begin(), container.extra.end());
  command.push_back(container.image);
  return command;
}

bool is_in_path(const std::string& program) {
  std::istringstream path(env::get_or("PATH", "/bin:/usr/bin"));
  for (std::string folder; std::getline(path, folder, ':');)
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

void take_container_options(config::RunConfig& config) {
  auto& container = config.container;
  std::vector<std::string> others;
  for (const std::string& option : slurm::joined(config.slurm.extra)) {
    if (!is_option_of_pyxis(option)) {
      others.push_back(option);
      continue;
    }
    if (container.runtime != ContainerRuntime::pyxis)
      throw Error(Exit::usage, "sbatch's " + option.substr(0, option.find('=')) + " cannot be given",
                  "it is an option of pyxis, and container.runtime is " + config::name_of(container.runtime),
                  "Set container.image, container.mounts, ... instead?");
    const auto equals = option.find('=');
    const std::string name = option.substr(0, equals),
                      value = equals == std::string::npos ? "" : option.substr(equals + 1);
    if (name == "--container-image")
      container.image = value;
    else if (name == "--container-mounts")
      add_listed(container.mounts, value);
    else if (name == "--container-workdir")
      container.workdir = value;
    else if (name == "--container-writable" || name == "--container-readonly")
      container.writable = name == "--container-writable";
    else
      container.extra.push_back(option);
  }
  config.slurm.extra = std::move(others);
}

std::vector<std::string> check_image(const config::RunConfig& config, const RunDir& run,
                                     const fs::path& program) {
  const auto& container = config.container;
  if (container.image.empty()) return {};
  check_installation(config, program);
  check_mountable("the run directory (run.dir)", run.path);
  for (const auto& [what, path] : inputs_of(config)) check_mountable(what, path);
  std::vector<std::string> warnings;
  std::error_code unknown;
  if (const fs::path file = image_file(container); !file.empty() && !fs::exists(file, unknown))
    warnings.push_back(
        fmt::format("the image {} is not on this machine; every node must have it", file.string()));
  if (config.slurm.bundle.empty() && !fs::exists(installation_of(program) / "share/holdfast/bundle", unknown))
    warnings.push_back(
        "this Holdfast is no bundle: in the image it finds only such libraries as the image has");
  if (config.cluster.nodes + config.cluster.spares == 2)
    warnings.push_back(
        "of two agents the one that is left leads only when it reaches SLURM, for which the image needs "
        "SLURM's tools");
  return warnings;
}

void check_runtime(const config::Container& container, bool on_node) {
  if (container.image.empty()) return;
  if (container.runtime == ContainerRuntime::pyxis) {
    slurm::need_step_option("--container-image", "pyxis", help_limit);
  } else if (on_node && !is_in_path("apptainer")) {
    throw Error(Exit::usage, "the agents cannot be started in an image",
                "container.runtime is apptainer, and there is none in PATH",
                "Load its module before you submit?");
  }
}

std::vector<std::string> mounts_of(const config::RunConfig& config, const config::ClusterFacts& facts,
                                   const RunDir& run, const fs::path& program) {
  if (config.container.image.empty()) return {};
  Mounts mounts;
  mounts.add(installation_of(program));
  mounts.add(run.path);
  mounts.add(node_memory);  // pyxis shows it, but lets nothing be executed there
  for (const auto& part : config::mixture_of(config.data)) mounts.add_file(part.path);
  for (const std::string& path : config.data.validation) mounts.add_file(path);
  for (const std::string& tree : {config.model.weights, config.lora.weights}) mounts.add_tree(tree);
  if (config.run.resume.starts_with('/')) mounts.add_tree(config.run.resume);
  if (config.checkpoint.local.starts_with('/')) mounts.add(config.checkpoint.local);
  const std::string& ledger = config.supervise.ledger.empty() ? facts.ledger : config.supervise.ledger;
  if (!ledger.empty()) mounts.add(ledger);
  std::vector<std::string> out;
  for (const auto& path : mounts.outermost()) out.push_back(path.string() + ":" + path.string());
  const auto& own = config.container.mounts;
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

void run_in_image(slurm::StepRequest& request, const config::RunConfig& config,
                  const std::vector<std::string>& mounts) {
  if (config.container.image.empty()) return;
  if (config.container.runtime == ContainerRuntime::pyxis) {
    request.options = options_of_pyxis(config, mounts);
    return;
  }
  auto command = command_of_apptainer(config, mounts, request.gpus > 0);
  command.insert(command.end(), request.command.begin(), request.command.end());
  request.command = std::move(command);
}

}  // namespace holdfast::launcher
