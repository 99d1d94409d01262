#include "launcher/cli/find_run.hpp"

#include <algorithm>
#include <cctype>

#include "src/base/error.hpp"

namespace holdfast::launcher {

RunDir find_run(const std::string& word, slurm::Cluster& cluster) {
  namespace fs = std::filesystem;
  const RunDir named{fs::absolute(word).lexically_normal()};
  if (fs::exists(named.config())) return named;
  const RunDir by_name{fs::absolute(fs::path(runs_folder) / word).lexically_normal()};
  if (word.find('/') == std::string::npos && fs::exists(by_name.config())) return by_name;
  const bool number = !word.empty() && word.size() < 10 &&
                      std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
  if (!number)
    throw Error(Exit::usage, word + " is not a run directory", "it has no config.toml",
                "'holdfast ls' lists runs; a job id is accepted, too");
  const auto script = cluster.script_of_job(std::stoll(word));
  if (!script)
    throw Error(Exit::usage, "you have no job " + word, "SLURM knows no live job of that id",
                "'squeue --me' lists them");
  const RunDir run{script->parent_path()};
  if (!fs::exists(run.config()))
    throw Error(Exit::usage, "job " + word + " is not a run of Holdfast", "its script is " + script->string(),
                "'holdfast ls' lists runs");
  return run;
}

}  // namespace holdfast::launcher
