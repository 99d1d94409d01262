#include "launcher/cli/job_options.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

namespace holdfast::launcher {
namespace {

struct Flag {
  const char *names, *type, *key, *help;
  bool list = false;  ///< its value is a list, with commas between
};
constexpr std::array flags = {
    Flag{"-N,--nodes", "N", "cluster.nodes", "Active nodes"},
    Flag{"--spares", "N", "cluster.spares", "Spare nodes"},
    Flag{"--resume", "FROM", "run.resume", "auto, none or a checkpoint"},
    Flag{"-p,--partition", "PARTITION", "slurm.partition", "As with sbatch"},
    Flag{"-A,--account", "NAME", "slurm.account", "As with sbatch"},
    Flag{"-q,--qos", "NAME", "slurm.qos", "As with sbatch"},
    Flag{"-t,--time", "TIME", "slurm.time", "As with sbatch"},
    Flag{"-C,--constraint", "LIST", "slurm.constraint", "As with sbatch"},
    Flag{"--reservation", "NAME", "slurm.reservation", "As with sbatch"},
    Flag{"--container-image", "IMAGE", "container.image", "Image in which the agents and ranks run"},
    Flag{"--container-mounts", "LIST", "container.mounts", "As with pyxis", true},
};

std::string spelled(const Flag& flag, const std::string& value) {
  if (!flag.list) return value;
  std::istringstream items(value);
  std::vector<std::string> list;
  for (std::string item; std::getline(items, item, ',');) list.push_back(item);
  return nlohmann::json(list).dump();  // which TOML reads, too
}

}  // namespace

void JobOptions::add_to(CLI::App& verb) {
  verb.add_option("job", file, "Job file, or the name of one in configs/jobs")
      ->required()
      ->type_name("JOB.toml");
  verb.add_option("--set", sets, "A setting, for example train.steps=500; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  values_.resize(flags.size());
  for (std::size_t i = 0; i < flags.size(); ++i)
    verb.add_option(flags[i].names, values_[i], fmt::format("{} ({})", flags[i].help, flags[i].key))
        ->type_name(flags[i].type);
}

bool JobOptions::any_set() const { return !all_sets().empty(); }

config::Loaded JobOptions::load() const {
  config::Loaded loaded = config::load(file, all_sets());
  if (auto& origin = loaded.origin["run.name"]; origin == "default") {
    loaded.config.run.name = std::filesystem::path(file).stem().string();
    origin = "the job file's name";
  }
  return loaded;
}

std::vector<std::string> JobOptions::all_sets() const {
  auto all = sets;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (!values_[i].empty()) all.push_back(fmt::format("{}={}", flags[i].key, spelled(flags[i], values_[i])));
  return all;
}

}  // namespace holdfast::launcher
