#include "launcher/job/rank_inputs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "src/base/env.hpp"
#include "src/config/load.hpp"
#include "src/config/mixture.hpp"
#include "src/data/token_checks.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

/// Why `path` cannot be used at all, or "".
std::string why_absent(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) return "";
  return error ? error.message() : std::strerror(ENOENT);
}

void check_tokens(const config::RunConfig& config, const config::ModelShape& model,
                  std::vector<Error>& absent) {
  std::vector<std::string> paths;
  for (const config::MixturePart& part : config::mixture_of(config.data)) paths.push_back(part.path);
  if (config.eval.every > 0) paths.push_back(config.data.validation);
  std::vector<std::pair<std::string, data::TokenFile>> found;
  for (const std::string& path : paths) {
    if (const std::string why = why_absent(path); !why.empty())
      absent.emplace_back(Exit::usage, "cannot use the token file " + path, why,
                          "Make one with 'holdfast data prepare'?");
    else
      found.emplace_back(path, data::open_for(path, config.train.sequence, model.name, model.vocabulary));
  }
  if (config.data.other_tokenizer) return;
  std::vector<data::NamedFile> files;
  for (const auto& [path, file] : found) files.push_back({path, &file});
  data::require_one_tokenizer(files, config.model.weights);
}

void check_weights(const config::RunConfig& config, std::vector<Error>& absent) {
  if (const auto& path = config.model.weights; !path.empty() && !why_absent(path).empty())
    absent.emplace_back(Exit::usage, "there are no weights at " + path, "model.weights names them",
                        "Name a Hugging Face folder, a safetensors file, a checkpoint or a run?");
  if (const auto& path = config.lora.weights; !path.empty() && !why_absent(path).empty())
    absent.emplace_back(Exit::usage, "there are no adapters at " + path, "lora.weights names them",
                        "Name a folder of PEFT, a checkpoint or a run?");
}

void check_directory(const config::Rank& rank, std::vector<Error>& absent) {
  if (std::error_code ignored; !rank.directory.empty() && !fs::is_directory(rank.directory, ignored))
    absent.emplace_back(Exit::usage, "there is no folder " + rank.directory, "rank.directory names it",
                        "Name a folder that every node sees?");
}

/// The PATH in which the ranks will find a program without a folder in its name.
std::string search_path(const config::Rank& rank) {
  std::string path = env::get("PATH").value_or("/bin:/usr/bin");
  for (const std::string& entry : rank.environment)
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  return path;
}

/// The name "holdfast-train" means the program that belongs to `holdfast`, here or in a bundle.
void check_program(const config::Rank& rank, std::vector<Error>& absent) {
  const std::string& name = rank.command.front();
  if (name == "holdfast-train") return;
  const auto runs = [](const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') == std::string::npos) {
    const std::string searched = search_path(rank);
    std::istringstream folders(searched);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (runs(fs::path(folder.empty() ? "." : folder) / name)) return;
    absent.emplace_back(Exit::usage, fmt::format("there is no program '{}'", name),
                        fmt::format("rank.command names it, and it is not in PATH ({})", searched),
                        "Name it with its folder, or set PATH in rank.environment?");
  } else if (const std::string why = why_absent(name); !why.empty()) {
    absent.emplace_back(Exit::usage, fmt::format("there is no program '{}'", name),
                        "rank.command names it: " + why, "Name a program that every node sees?");
  } else if (!runs(name)) {
    throw Error(
        Exit::usage, fmt::format("'{}' is not a program", name),
        "rank.command names it, and it is not an executable file",
        fmt::format("chmod +x it, or put the program that reads it first: [\"python3\", \"{}\"]?", name));
  }
}

}  // namespace

std::vector<Error> check_rank_inputs(const config::RunConfig& config, const config::ModelShape& model) {
  std::vector<Error> absent;
  if (config.container.image.empty()) {  // else they lie in the image
    check_program(config.rank, absent);
    check_directory(config.rank, absent);
  }
  if (!config::own_trainer(config.rank)) return absent;  // another program checks its own files
  check_tokens(config, model, absent);
  check_weights(config, absent);
  return absent;
}

}  // namespace holdfast::launcher
