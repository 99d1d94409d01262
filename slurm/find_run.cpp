#include "slurm/find_run.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/access.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::slurm {
namespace {

/// It may be read, too. Throws Error (usage) where it may not.
bool is_run(const RunDir& run) {
  if (!may_read(run.path)) refuse_reading(run.path);
  return files::is_there(run.config());
}

/// The run here, or in runs/, whose directory belongs to this job.
std::optional<RunDir> owned_by(JobId id) {
  namespace fs = std::filesystem;
  for (const fs::path& folder : {fs::path("."), fs::path(runs_folder)})
    for (const std::string& name : files::list(folder)) {
      const RunDir run{fs::absolute(folder / name).lexically_normal()};
      if (!may_read(run.path) || !may_read(run.owner())) continue;
      if (!files::is_there(run.owner()) || !files::is_there(run.config())) continue;
      const auto owner = json_from(files::read_text(run.owner()));
      if (typed<JobId>(owner, "job_id") == id) return run;
    }
  return std::nullopt;
}

}  // namespace

bool may_be_job(const std::string& word) {
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  };
  const std::string_view text = word;
  const auto bar = text.find('_');
  return is_number(text.substr(0, bar)) && (bar == std::string::npos || is_number(text.substr(bar + 1)));
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
  const auto id =
      word.find('_') == std::string::npos ? std::optional<JobId>(std::stoll(word)) : cluster.number_of(word);
  const auto script = id ? cluster.script_of_job(*id) : std::nullopt;
  const RunDir run{script ? script->parent_path() : std::filesystem::path()};
  if (script && *script == run.script() && is_run(run)) return run;
  if (const auto owned = id ? owned_by(*id) : std::nullopt) return *owned;
  if (!script)
    throw Error(Exit::usage, "you have no job " + word, "SLURM knows no live job of that id",
                "'squeue --me' lists them");
  if (!is_run(run))
    throw Error(Exit::usage, "job " + word + " is not a run of Holdfast", "its script is " + script->string(),
                "'holdfast ls' lists runs");
  return run;
}

}  // namespace holdfast::slurm
