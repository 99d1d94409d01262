#include "slurm/find_run.hpp"

#include <algorithm>
#include <cctype>

#include "src/base/access.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::slurm {
namespace {

/// It may be read, too. Throws Error (usage) where it may not.
bool is_run(const RunDir& run) {
  if (!may_read(run.path)) refuse_reading(run.path);
  return files::is_there(run.config());
}

}  // namespace

bool may_be_job(const std::string& word) {
  return !word.empty() && word.size() < 10 &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::optional<RunDir> run_called(const std::string& word) {
  namespace fs = std::filesystem;
  const RunDir named{fs::absolute(word).lexically_normal()};
  if (is_run(named)) return named;
  const RunDir by_name{fs::absolute(fs::path(runs_folder) / word).lexically_normal()};
  if (word.find('/') == std::string::npos && is_run(by_name)) return by_name;
  return std::nullopt;
}

RunDir find_run(const std::string& word, Cluster& cluster) {
  if (const auto run = run_called(word)) return *run;
  if (!may_be_job(word))
    throw Error(Exit::usage, word + " is not a run directory", "it has no config.toml",
                "'holdfast ls' lists runs; a job id is accepted, too");
  const auto script = cluster.script_of_job(std::stoll(word));
  if (!script)
    throw Error(Exit::usage, "you have no job " + word, "SLURM knows no live job of that id",
                "'squeue --me' lists them");
  const RunDir run{script->parent_path()};
  if (!is_run(run))
    throw Error(Exit::usage, "job " + word + " is not a run of Holdfast", "its script is " + script->string(),
                "'holdfast ls' lists runs");
  return run;
}

}  // namespace holdfast::slurm
