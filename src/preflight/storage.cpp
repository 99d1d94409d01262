// Room for checkpoints, and paths that nodes may not see.
#include <fmt/format.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "checkpoint/index/catalog.hpp"
#include "src/base/units.hpp"
#include "src/config/mixture.hpp"
#include "src/preflight/checks.hpp"
#include "src/preflight/paths.hpp"

namespace holdfast::preflight {
namespace {

namespace fs = std::filesystem;

/// Bytes that a user may still write there; nothing: the file system does not say.
std::optional<std::int64_t> free_bytes(const fs::path& path) {
  struct statvfs facts {};
  if (::statvfs(path.c_str(), &facts) != 0 || facts.f_blocks == 0) return {};
  return static_cast<std::int64_t>(facts.f_bavail) * static_cast<std::int64_t>(facts.f_frsize);
}

/// File systems that one machine has for itself (linux/magic.h); nodes may export them to each other.
const char* of_one_machine(const fs::path& path) {
  struct statfs facts {};
  if (::statfs(path.c_str(), &facts) != 0) return nullptr;
  switch (static_cast<unsigned long>(facts.f_type)) {
    case 0x01021994:
      return "tmpfs";
    case 0x858458f6:
      return "ramfs";
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x794c7630:
      return "overlay";
    default:
      return nullptr;
  }
}

/// The settings whose files the nodes read or write.
std::vector<std::pair<std::string, fs::path>> paths_of(const Subject& subject) {
  const config::RunConfig& config = subject.config;
  std::vector<std::pair<std::string, fs::path>> out;
  const auto add = [&](const char* setting, const fs::path& path) {
    if (!path.empty()) out.emplace_back(setting, path);
  };
  add("run.dir", subject.run.path);
  for (const auto& part : config::mixture_of(config.data))
    add(config.data.mixture.empty() ? "data.tokens" : "data.mixture", part.path);
  if (config.eval.every > 0)
    for (const std::string& path : config.data.validation) add("data.validation", path);
  add("model.weights", config.model.weights);
  add("lora.weights", config.lora.weights);
  add("rank.directory", config.rank.directory);
  if (config.run.resume != "auto" && config.run.resume != "none") add("run.resume", config.run.resume);
  return out;
}

/// As it is written, and where its links lead.
std::array<fs::path, 2> names_of(const fs::path& path) {
  std::error_code unknown;
  return {path, fs::weakly_canonical(path, unknown)};
}

/// By any of their names.
bool is_below(const fs::path& path, const fs::path& folder) {
  const auto begins_with = [](const fs::path& inner, const fs::path& outer) {
    const auto [end, ignored] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
    return !outer.empty() && (end == outer.end() || (end->empty() && std::next(end) == outer.end()));
  };
  for (const fs::path& inner : names_of(path))
    for (const fs::path& outer : names_of(folder))
      if (begins_with(inner, outer)) return true;
  return false;
}

/// Where a machine keeps files for itself, also if its cluster file says that "/" is shared; else "".
std::string kept_by_each_machine(const fs::path& path) {
  for (const char* folder : {"/tmp", "/var/tmp", "/dev/shm", "/run"})
    if (is_below(path, folder)) return folder;
  return "";
}

}  // namespace

void check_space(const Subject& subject, Problems& problems) {
  if (subject.checkpoint_bytes == 0 || subject.run.path.empty()) return;
  const fs::path folder = what_exists(subject.run.checkpoints());
  const auto free = free_bytes(folder);
  if (!free) return;
  const auto have = static_cast<int>(checkpoint::committed_steps(subject.run.checkpoints()).size());
  // The oldest goes when the newest is whole.
  const int more = std::max(1, subject.config.checkpoint.keep + 1 - have);
  const std::int64_t one = subject.checkpoint_bytes;
  const std::string there = fmt::format("{} has {} free", folder.string(), size_text(*free));
  if (*free < one)
    problems.add_of_this_machine({Exit::impossible, "there is no room for a checkpoint",
                                  fmt::format("it takes {}, and {}", size_text(one), there),
                                  "Choose another run.dir, or make room?"});
  else if (*free < one * more)
    problems.doubt(fmt::format("{}: {} more checkpoints of {} will not fit (checkpoint.keep = {})", there,
                               more, size_text(one), subject.config.checkpoint.keep));
}

void check_shared(const Subject& subject, Problems& problems) {
  const auto& shared = subject.facts.shared;
  for (const auto& [setting, given] : paths_of(subject)) {
    const fs::path path = fs::absolute(given).lexically_normal();
    const auto names_it = [&](const std::string& folder) { return folder != "/" && is_below(path, folder); };
    if (!shared.empty()) {
      if (std::ranges::any_of(shared, names_it)) continue;
      if (std::ranges::find(shared, "/") == shared.end())
        problems.add({Exit::usage, fmt::format("the nodes do not see {} {}", setting, path.string()),
                      fmt::format("all nodes of {} see {}", subject.facts.name, fmt::join(shared, ", ")),
                      "Put it there, or correct storage.shared in the cluster file?"});
      else if (const std::string own = kept_by_each_machine(path); !own.empty())
        problems.doubt(fmt::format("{} {} is in {}, which nodes usually have each for itself", setting,
                                   path.string(), own));
    } else if (const char* kind = of_one_machine(what_exists(path))) {
      problems.doubt(fmt::format(
          "{} {} is on a file system of this machine alone ({}), unless nodes import it; storage.shared in "
          "the cluster file says which folders all nodes see",
          setting, path.string(), kind));
    }
  }
}

}  // namespace holdfast::preflight
