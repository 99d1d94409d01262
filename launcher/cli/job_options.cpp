#include "launcher/cli/job_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "launcher/job/other_launchers.hpp"
#include "launcher/job/run_dir_setup.hpp"
#include "launcher/job/run_owner.hpp"
#include "slurm/job_env.hpp"
#include "src/base/errors.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/shell_words.hpp"

namespace holdfast::launcher {
namespace {

enum class Spelling {
  as_it_is,
  list,  ///< with commas between
  words  ///< as a shell reads them; or a list as in a job file
};
struct Flag {
  const char *names, *type, *key, *help;
  Spelling spelling = Spelling::as_it_is;
};
constexpr std::array flags = {
    Flag{"-J,--job-name", "NAME", "run.name", "Name of the job"},
    Flag{"-N,--nodes", "N", "cluster.nodes", "Active nodes"},
    Flag{"--spares", "N", "cluster.spares", "Spare nodes"},
    Flag{"--command", "COMMAND", "rank.command",
         "Program of the ranks, and its arguments, as a shell reads them; it needs no job file",
         Spelling::words},
    Flag{"--resume", "FROM", "run.resume", "auto, none or a checkpoint"},
    Flag{"-p,--partition", "PARTITION", "slurm.partition", "As with sbatch"},
    Flag{"-A,--account", "NAME", "slurm.account", "As with sbatch"},
    Flag{"-q,--qos", "NAME", "slurm.qos", "As with sbatch"},
    Flag{"-t,--time", "TIME", "slurm.time", "As with sbatch"},
    Flag{"-C,--constraint", "LIST", "slurm.constraint", "As with sbatch"},
    Flag{"--reservation", "NAME", "slurm.reservation", "As with sbatch"},
    Flag{"--container-image", "IMAGE", "container.image", "Image in which the agents and ranks run"},
    Flag{"--container-mounts", "LIST", "container.mounts", "As with pyxis", Spelling::list},
};

std::string spelled(const Flag& flag, const std::string& value) {
  if (flag.spelling == Spelling::as_it_is || (flag.spelling == Spelling::words && value.starts_with('[')))
    return value;
  if (flag.spelling == Spelling::words) return nlohmann::json(shell_words(value)).dump();
  std::istringstream items(value);
  std::vector<std::string> list;
  for (std::string item; std::getline(items, item, ',');) list.push_back(item);
  return nlohmann::json(list).dump();  // which TOML reads, too
}

/// "train" of {"python3", "-u", "src/train.py"}, {"python3", "-m", "train"} or {"./train"}.
std::string name_of(const std::vector<std::string>& command) {
  namespace fs = std::filesystem;
  const auto script =
      std::ranges::find_if(command, [](const std::string& word) { return word.ends_with(".py"); });
  const auto module = std::find(command.begin(), script, "-m");
  if (fs::path(command.front()).filename().string().starts_with("python") && module != script &&
      module + 1 != script)
    return *(module + 1);
  return fs::path(script != command.end() ? *script : command.front()).stem().string();
}

/// A requeued job finds its run again.
bool is_taken(const RunDir& run) {
  if (!files::exists_or_fail(run.path)) return false;
  const auto owner = read_owner(run);
  return !(owner && slurm::inside_a_job() && owner->job == slurm::job_env().job);
}

void name_by_command(config::RunConfig& config) {
  const std::string name = name_of(config.rank.command);
  config.run.name = name;
  if (!config.run.dir.empty()) return;
  for (int number = 2; is_taken(run_dir_of(config)); ++number)
    config.run.name = fmt::format("{}-{}", name, number);
}

/// Errors say of a setting that it came by --set; what was typed may be a flag that stands for it.
Error with_flag_named(const Error& error, const std::vector<std::string>& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!values[i].empty() && error.why() == fmt::format("--set {}", flags[i].key))
      return {error.exit(), error.problem(), flags[i].names, error.hint()};
  return error;
}

}  // namespace

void JobOptions::add_to(CLI::App& verb) {
  verb.add_option("job", file, "Job file, or the name of one in configs/jobs")->type_name("JOB.toml");
  verb.add_option("--set", sets, "A setting, for example train.steps=500; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  values_.resize(flags.size());
  for (std::size_t i = 0; i < flags.size(); ++i)
    verb.add_option(flags[i].names, values_[i], fmt::format("{} ({})", flags[i].help, flags[i].key))
        ->type_name(flags[i].type);
}

std::vector<std::string> JobOptions::flags_of(std::vector<std::string> words) {
  if (file.starts_with('-')) words.insert(words.begin(), std::exchange(file, ""));
  return words;
}

bool JobOptions::any_set() const { return !all_sets().empty(); }

config::Loaded JobOptions::load(int nodes_here) const {
  config::Loaded loaded = with_flags_named(
      [&] { return file.empty() ? config::load_defaults(all_sets()) : config::load(file, all_sets()); });
  if (file.empty() && loaded.origin["rank.command"] == "default")
    throw Error(Exit::usage, "no job file was given", "", "Name one, or a program with --command?");
  auto& cluster = loaded.config.cluster;
  if (file.empty() && nodes_here > 0 && loaded.origin["cluster.nodes"] == "default")
    cluster.nodes = std::max(1, nodes_here - cluster.spares);
  for (const auto& line : take_launcher(loaded, this_machine())) log::warn("{}", line);
  auto& origin = loaded.origin["run.name"];
  if (origin != "default") return loaded;
  if (file.empty()) {
    name_by_command(loaded.config);
    origin = "the program's name";
  } else {
    loaded.config.run.name = std::filesystem::path(file).stem().string();
    origin = "the job file's name";
  }
  return loaded;
}

template <class Load>
config::Loaded JobOptions::with_flags_named(Load load) const {
  ErrorList errors;
  try {
    return load();
  } catch (const Errors& all) {
    for (const Error& error : all.all()) errors.add(with_flag_named(error, values_));
  }
  throw Errors(errors.all());
}

std::vector<std::string> JobOptions::all_sets() const {
  auto all = sets;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (!values_[i].empty()) all.push_back(fmt::format("{}={}", flags[i].key, spelled(flags[i], values_[i])));
  return all;
}

}  // namespace holdfast::launcher
