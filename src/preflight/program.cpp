// The program of the ranks, and the folder in which they work.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "src/base/env.hpp"
#include "src/base/subprocess.hpp"
#include "src/preflight/checks.hpp"
#include "src/preflight/paths.hpp"

namespace holdfast::preflight {
namespace {

namespace fs = std::filesystem;

/// The PATH in which the ranks will find a program without a folder in its name.
std::string search_path(const Subject& subject) {
  std::string path = env::get("PATH").value_or("/bin:/usr/bin");
  for (const auto* environment : {&subject.facts.environment, &subject.config.rank.environment})
    for (const std::string& entry : *environment)
      if (entry.starts_with("PATH=")) path = entry.substr(5);
  return path;
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

/// The name "holdfast-train" means the program that belongs to `holdfast`, here or in a bundle.
void check_program(const Subject& subject, Problems& problems) {
  const config::Rank& rank = subject.config.rank;
  if (rank.command.empty() || rank.command.front() == "holdfast-train") return;
  const std::string& name = rank.command.front();
  const auto absent = [&](std::string why, std::string hint) {
    problems.add_of_this_machine(
        {Exit::usage, fmt::format("there is no program '{}'", name), std::move(why), std::move(hint)});
  };
  if (name.find('/') == std::string::npos) {
    const std::string searched = search_path(subject);
    if (std::ranges::none_of(places_in(searched, name),
                             [&](const fs::path& place) { return is_program(rank.directory / place); }))
      absent(fmt::format("rank.command names it, and it is not in PATH ({})", searched),
             "Name it with its folder, or set PATH in rank.environment?");
  } else if (const std::string why = why_absent(name); !why.empty()) {
    absent("rank.command names it: " + why, "Name a program that every node sees?");
  } else if (!is_program(name)) {
    problems.add(
        {Exit::usage, fmt::format("'{}' is not a program", name),
         "rank.command names it, and it is not an executable file",
         fmt::format("chmod +x it, or put the program that reads it first: [\"python3\", \"{}\"]?", name)});
  }
}

void check_directory(const Subject& subject, Problems& problems) {
  const std::string& folder = subject.config.rank.directory;
  if (std::error_code ignored; !folder.empty() && !fs::is_directory(folder, ignored))
    problems.add_of_this_machine({Exit::usage, "there is no folder " + folder, "rank.directory names it",
                                  "Name a folder that every node sees?"});
}

}  // namespace holdfast::preflight
