// Where configs/models, configs/clusters and configs/jobs are: set by hand, installed, or in the source tree
// above the build.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "src/base/bundle.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"

namespace holdfast::config {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> folders(const std::string& kind) {
  std::vector<fs::path> out;
  if (const auto chosen = env::get("HOLDFAST_CONFIGS")) out.push_back(fs::path(*chosen) / kind);
  const fs::path program = program_path();
  if (program.empty()) return out;
  const fs::path beside = program.parent_path();
  out.push_back((beside / "../share/holdfast/configs" / kind).lexically_normal());
  for (const fs::path& folder : own_folders_above(program)) out.push_back(folder / "configs" / kind);
  return out;
}

/// The path if something is there; else throws Error (usage) with what may be meant.
fs::path given_path(const std::string& what, const fs::path& path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown))
    throw Error(Exit::usage, fmt::format("{} is a folder, not a {} file", path.string(), what), "",
                what == "job" ? "Give the job file: to continue a run, the one that it began with?"
                              : "Give a file in it?");
  if (fs::exists(path, unknown) || unknown) return path;  // the error comes when it is read
  const fs::path folder = fs::absolute(path).parent_path();
  std::vector<std::string> stems;
  if (fs::is_directory(folder, unknown))
    for (const fs::path name : files::list(folder))
      if (name.extension() == ".toml") stems.push_back(name.stem().string());
  const std::string nearest = nearest_name(path.stem().string(), stems);
  throw Error(Exit::usage, fmt::format("there is no {} file {}", what, path.string()),
              "it was looked for in " + folder.string(),
              !nearest.empty()    ? "Did you mean " + nearest + ".toml?"
              : what == "cluster" ? "Write one with 'holdfast init -o FILE'?"
                                  : "Is its path right?");
}

}  // namespace

std::vector<std::string> names_of_configs(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& folder : folders(kind))
    for (const auto& file : files::list(folder))
      if (file.ends_with(".toml")) names.push_back(file.substr(0, file.size() - 5));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

fs::path find_config(const std::string& kind, const std::string& name_or_path) {
  const std::string what = kind.ends_with('s') ? kind.substr(0, kind.size() - 1) : kind;
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml"))
    return given_path(what, name_or_path);
  for (const auto& folder : folders(kind))
    if (const fs::path file = folder / (name_or_path + ".toml"); files::exists_or_fail(file)) return file;
  const auto names = names_of_configs(kind);
  const std::string nearest = nearest_name(name_or_path, names);
  throw Error(Exit::usage, fmt::format("there is no {} called '{}'", what, name_or_path),
              names.empty() ? "no folder configs/" + kind + " was found"
                            : fmt::format("there are {}", fmt::join(names, ", ")),
              !nearest.empty() ? "Did you mean " + nearest + "?"
              : names.empty()  ? "Set HOLDFAST_CONFIGS to the configs folder, or give a path?"
                               : "Give a path to a file of yours?");
}

}  // namespace holdfast::config
